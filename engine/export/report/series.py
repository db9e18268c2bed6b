"""What a report draws of a run, in one pass over its records: slots over time, and numbers a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from engine.trace import Array, Kind, Step, Trace

FINEST = 1_600  # parts of a run's time that a picture can tell apart
POINTS = 300  # of a line


class Shade(IntEnum):
    """What a slot does. AGAIN: what it computes is thrown away."""

    PREFILL = 0
    DECODE = 1
    HELD = 2
    VERIFY = 3
    AGAIN = 4


@dataclass(slots=True)
class Cell:
    """A slot busy with one request's one thing, seconds from the first request. `left`: the request was preempted after
    it, and does not wait in its slot."""

    slot: int
    request: int
    shade: Shade
    begin: float
    end: float
    left: bool = False


@dataclass(slots=True)
class RunSeries:
    """Columns a step: when it ended, and what was emitted, ran, waited and lay in the KV pool then. `cells`, by slot
    and time, tell what `FINEST` parts of the time can show."""

    duration: float
    slots: int = 0
    ends: Array = field(default_factory=lambda: np.zeros(0))
    emitted: Array = field(default_factory=lambda: np.zeros(0))
    running: Array = field(default_factory=lambda: np.zeros(0))
    waiting: Array = field(default_factory=lambda: np.zeros(0))
    kv: Array = field(default_factory=lambda: np.zeros((0, 4)))  # used, reserved, internal, external, in tokens
    cells: list[Cell] = field(default_factory=list)

    @classmethod
    def of(cls, trace: Trace) -> RunSeries:
        origin = trace.origin or 0.0
        series = cls(max(trace.end - origin, 1e-9))
        told: list[tuple[float, ...]] = []
        last: dict[int, Cell] = {}
        until, finest = 0.0, series.duration / FINEST
        for step in trace.records:
            if isinstance(step, Step):
                begin = max(step.started - origin, until)
                until = max(step.ended - origin, begin)
                kinds = (step.kv_used, step.kv_reserved, step.kv_internal, step.kv_external)
                told.append((until, len(step.token), step.running, step.waiting, *kinds))
                for cell in last.values() if len(step.preempted) else ():
                    cell.left |= cell.request in step.preempted
                series._rows(step, begin, until, last, finest)
        columns = np.array(told, float).reshape(-1, 8)
        series.ends, series.emitted, series.running, series.waiting = columns[:, :4].T
        series.kv = columns[:, 4:]
        series.slots = 1 + max(last, default=-1)
        series.cells.sort(key=lambda cell: (cell.slot, cell.begin))
        return series

    def _rows(self, step: Step, begin: float, end: float, last: dict[int, Cell], finest: float) -> None:
        columns = (step.slot, step.request, step.kind, step.count, step.wasted)
        drafted = step.drafted.tolist() or [0] * step.rows
        for slot, request, kind, count, wasted, drafts in zip(*(c.tolist() for c in columns), drafted):
            if slot < 0:
                continue
            if kind == Kind.HELD:
                shade = Shade.HELD
            elif 0 < count <= wasted:
                shade = Shade.AGAIN
            else:
                shade = Shade.VERIFY if drafts else Shade.PREFILL if kind == Kind.PREFILL else Shade.DECODE
            before = last.get(slot)
            if before is not None and begin - before.end < finest:
                same = before.request == request and before.shade is shade
                if same or end - before.begin < finest:  # too short to be seen beside the other
                    before.end = end
                    continue
            last[slot] = Cell(slot, request, shade, begin, end)
            self.cells.append(last[slot])

    # -- lines: x in seconds, y, of at most `POINTS` points ---------------------------------------------------------

    def most(self, values: Array) -> tuple[Array, Array]:
        """The most in each part of the time; of `values` [steps, kinds] those of the step with the largest sum."""
        if not len(self.ends):
            return np.zeros(0), values
        part = np.minimum(self.ends / self.duration * POINTS, POINTS - 1).astype(np.int64)
        size = values.sum(axis=1) if values.ndim > 1 else values
        order = np.lexsort((size, part))
        chosen = np.sort(order[np.flatnonzero(np.diff(part[order], append=-1))])
        return self.ends[chosen], values[chosen]

    def emitted_so_far(self) -> tuple[Array, Array]:
        """Tokens since the first request."""
        total = np.cumsum(self.emitted)
        if len(total) > POINTS:
            chosen = np.unique(np.linspace(0, len(total) - 1, POINTS).astype(np.int64))
            return self.ends[chosen], total[chosen]
        return self.ends, total

    def rate(self, parts: int = 60) -> tuple[Array, Array]:
        """Tokens a second in each of so many parts of the time, told at its end."""
        edges = np.linspace(0, self.duration, parts + 1)
        counts, _ = np.histogram(self.ends, edges, weights=self.emitted)
        return edges[1:], counts / (self.duration / parts)
