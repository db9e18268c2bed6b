"""A run's timeline in little: which request each slot computed when, in a grid small enough to keep thousands."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.trace import Array, Kind, Step, Trace

LINES, COLUMNS = 22, 160
IDLE, HELD = -1, -2
MOST_BYTES = 1 << 20  # of a grid that is believed


@dataclass(frozen=True, slots=True)
class Strip:
    """`cells` `[lines, columns]`: 2 × request for a decode and 2 × request + 1 for a prefill; IDLE where nothing was
    computed, HELD where a finished row was. A line is a slot, or stands for several; time goes to the right."""

    cells: Array

    def text(self) -> str:
        lines, columns = self.cells.shape
        packed = base64.b64encode(zlib.compress(self.cells.astype("<i4").tobytes())).decode()
        return f"{lines} {columns} {packed}"

    @classmethod
    def parse(cls, text: str) -> Strip:
        """Raises ValueError for what `text` did not write."""
        lines, columns, packed = text.split(" ")
        size = 4 * int(lines) * int(columns)
        if not 0 < size <= MOST_BYTES:
            raise ValueError(f"a strip of {size} bytes")
        try:
            data = zlib.decompressobj().decompress(base64.b64decode(packed), size + 1)
        except zlib.error as error:
            raise ValueError(f"no strip: {error}") from error
        if len(data) != size:
            raise ValueError(f"a strip of {len(data)} bytes, not {size}")
        return cls(np.frombuffer(data, "<i4").reshape(int(lines), int(columns)))


def strip_of(traces: Sequence[Trace]) -> Strip:
    """Of one trace, or of several below each other on one clock, each from its first request on."""
    span = max((trace.end - (trace.origin or 0.0) for trace in traces), default=0.0)
    room = (LINES - (len(traces) - 1)) // max(len(traces), 1)
    parts: list[Array] = []
    for trace in traces:
        parts += [np.full((1, COLUMNS), IDLE, np.int32)] * bool(parts) + [_lane(trace, room, span)]
    return Strip(np.concatenate(parts) if parts else np.full((1, COLUMNS), IDLE, np.int32))


def _lane(trace: Trace, room: int, span: float) -> Array:
    """Its slots but those at the end that nothing ever used: 64 may be open for two requests."""
    cells = np.full((max(1, trace.header.config.slots), COLUMNS), IDLE, np.int32)
    origin = trace.origin or 0.0
    for record in trace.records if span > 0 else ():
        if isinstance(record, Step) and record.rows:
            begin = int((record.started - origin) / span * COLUMNS)
            end = max(begin + 1, round((record.ended - origin) / span * COLUMNS))
            kind = record.kind
            told = 2 * record.request.astype(np.int32) + (kind == Kind.PREFILL)
            told[kind == Kind.HELD] = HELD
            placed = record.slot >= 0
            cells[record.slot[placed], max(begin, 0) : end] = told[placed][:, None]
    used = np.flatnonzero((cells != IDLE).any(axis=1))
    return _folded(cells[: used[-1] + 1 if len(used) else 1], room)


def _folded(cells: Array, room: int) -> Array:
    """In at most so many lines; of several slots on one, the last that computed is told."""
    if len(cells) <= room:
        return cells
    folded = np.full((room, COLUMNS), IDLE, np.int32)
    for slot, line in enumerate(cells):
        at = slot * room // len(cells)
        folded[at] = np.where(line == IDLE, folded[at], line)
    return folded
