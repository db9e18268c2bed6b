"""From a timeline's raster to its picture: colours and hatches, as 32-bit pixels 0xffRRGGBB. No Qt in here.

Hatches are bound to the time axis, so that they move with their bars. Of a bar's lines only as many differ as the
hatch's period, and each is painted once for all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.panels.timeline_cells import LOOKS, NEW_SHARE, Array, Look, TimelineCells
from app.panels.timeline_raster import Raster

DEPTHS = 4  # of a hatch line's soft edge; the last is the line itself
LEAST = 0.4  # a pixel is at least so full, however short what ran in it
EDGE = 0.4  # the border between two steps takes so much of the bar's colour away
DIMMED = 0.55
WAITING = 0.8
LOW = 5  # a bar of fewer pixels has no room for a line in its middle
_AGAIN = LOOKS - Look.AGAIN

# How much of the request's colour, and of the neutral one, each look has: between its hatch lines and in them.
_OWN = np.array([[1, 0.34, 0, 0, 0, *[0.14] * _AGAIN], [1, 0.92, 0, 0.8, 0, *[0.72] * _AGAIN]], np.float32)
_NEUTRAL = np.array([[0, 0, 0.04, 0, 0, *[0] * _AGAIN], [0, 0, 0.5, 0, 0, *[0] * _AGAIN]], np.float32)
_RISING = np.array([False, True, False, True, False, *[True] * _AGAIN])
_FALLING = np.array([False, False, True, True, False, *[True] * _AGAIN])


def _at_depth(depth: int) -> tuple[Array, Array]:
    share = np.float32(depth / (DEPTHS - 1))
    return _OWN[0] + share * (_OWN[1] - _OWN[0]), _NEUTRAL[0] + share * (_NEUTRAL[1] - _NEUTRAL[0])


def packed(color: Array) -> Array:
    """Pixels of colours [..., 3], components 0 to 1."""
    parts = np.clip(color * 255 + 0.5, 0, 255).astype(np.uint32)
    return np.asarray(0xFF000000 | parts[..., 0] << 16 | parts[..., 1] << 8 | parts[..., 2], np.uint32)


def unpacked(pixels: Array) -> Array:
    """Colours [..., 3] of pixels."""
    return np.stack([(pixels >> shift) & 0xFF for shift in (16, 8, 0)], axis=-1).astype(np.float32) / 255


@dataclass(frozen=True, slots=True)
class Bars:
    """A row's geometry in device pixels: rows are `pitch` apart, a bar is `bar` high and `top` below its row's top.
    Hatch lines are `period` apart along the time axis and `stroke` wide."""

    pitch: int
    top: int
    bar: int
    period: int
    stroke: float


@dataclass(slots=True)
class _Frame:
    """One picture under way. By pixel, flat: `look` and `request`; `stack` [depths, pixels] are its colours."""

    bars: Bars
    lanes: Array
    owner: Array
    look: Array
    request: Array
    stack: Array
    mixed: Array
    mixed_line: Array

    def put(self, y: int, pixels: Array, colors: Array) -> None:
        """Colours these pixels on one line of their rows."""
        columns = self.lanes.shape[2]
        self.lanes[pixels // columns, y, pixels % columns] = colors


class TimelineInk:
    """The colours of every request so far. Make a new one when the theme changes; components are 0 to 1."""

    def __init__(self, ground: Array, rule: Array, neutral: Array) -> None:
        """`rule`: the hairline under each row; `neutral`: the colour of what belongs to no request."""
        self._ground, self._neutral = np.asarray(ground, np.float32), np.asarray(neutral, np.float32)
        self._empty, self._rule = packed(self._ground), packed(np.asarray(rule, np.float32))
        self._own = np.zeros((0, 3), np.float32)  # difference from the ground
        self._tables = np.zeros((DEPTHS, LOOKS, 0), np.uint32)
        self._lines = np.zeros(0, np.uint32)

    @property
    def known(self) -> int:
        """How many requests have a colour."""
        return len(self._own)

    def learn(self, colors: Array, selected: int | None) -> None:
        """Colours [requests, 3] of requests by id, from the first on; all but the selected one are dimmed."""
        strength = np.full((len(colors), 1), 1.0 if selected is None else DIMMED, np.float32)
        if selected is not None and 0 <= selected < len(colors):
            strength[selected] = 1.0
        self._own = (np.asarray(colors, np.float32).reshape(-1, 3) - self._ground) * strength
        neutral = self._neutral - self._ground
        tables = []
        for depth in range(DEPTHS):
            own, grey = _at_depth(depth)
            tables.append(packed(self._ground + own[:, None, None] * self._own + grey[:, None, None] * neutral))
        self._tables = np.stack(tables)
        self._lines = packed(self._ground + WAITING * self._own)

    def paint(
        self, cells: TimelineCells, seen: Raster, bars: Bars, height: int, *, origin: int = 0,
        edges: Array | None = None,
    ) -> Array:  # fmt: skip
        """The picture [height, columns]. Time zero is at column `-origin`; in the columns `edges` steps meet."""
        rows, columns = seen.owner.shape
        picture = np.empty((height, columns), np.uint32)
        picture[:] = self._empty
        lanes = picture[: rows * bars.pitch].reshape(rows, bars.pitch, columns)
        if bars.pitch >= LOW:
            lanes[:, -1] = self._rule
        owner = seen.owner.ravel()
        busy = np.flatnonzero(owner >= 0)
        if not len(busy):
            return picture
        frame = self._frame(cells, seen, bars, lanes, owner, busy)
        self._fill(frame, seen.heads, origin)
        self._waits(frame)
        self._lost(frame)
        if edges is not None and len(edges):
            self._borders(frame, edges)
        return picture

    def _frame(
        self, cells: TimelineCells, seen: Raster, bars: Bars, lanes: Array, owner: Array, busy: Array
    ) -> _Frame:  # fmt: skip
        look = np.full(len(owner), Look.LINE, np.uint8)
        request = np.zeros(len(owner), np.int64)
        look[busy], request[busy] = cells.look[owner[busy]], cells.request[owner[busy]]
        stack = np.full((DEPTHS, len(owner)), self._empty, np.uint32)
        places = look[busy].astype(np.int64) * self.known + request[busy]
        for depth in range(DEPTHS):
            stack[depth, busy] = self._tables[depth].reshape(-1)[places]
        frame = _Frame(bars, lanes, owner, look, request, stack, seen.mixed, np.zeros(0, np.uint32))
        if len(seen.mixed):
            self._mix(frame, seen.shares)
        return frame

    def _mix(self, frame: _Frame, shares: Array) -> None:
        """The colours of pixels that several looks share, as wide as the shares; the hatch is that of the widest."""
        total = shares.sum(axis=0)
        shares = (shares * np.where(total < LEAST, LEAST / np.maximum(total, 1e-9), 1.0)).astype(np.float32)
        own, neutral = self._own[frame.request[frame.mixed]], self._neutral - self._ground
        for depth in range(DEPTHS):
            amount, grey = _at_depth(depth)
            color = self._ground + (amount @ shares)[:, None] * own + (grey @ shares)[:, None] * neutral
            frame.stack[depth, frame.mixed] = packed(color)
        line = np.minimum(1.0, _OWN[0] @ shares + WAITING * shares[Look.LINE])
        frame.mixed_line = packed(self._ground + line[:, None] * own + (_NEUTRAL[0] @ shares)[:, None] * neutral)
        widest = np.concatenate((shares[: Look.AGAIN], shares[Look.AGAIN :].sum(axis=0, keepdims=True)))
        widest[Look.LINE] *= 0.01  # a bar beside it tells more
        look = np.argmax(widest, axis=0)
        frame.look[frame.mixed] = np.where(look >= Look.AGAIN, Look.CROSS, look)

    def _fill(self, frame: _Frame, heads: Array, origin: int) -> None:
        """All bars, each line of a hatch's period once; a run's head is empty, which sets it apart from the last."""
        bars, lanes = frame.bars, frame.lanes
        rows, _, columns = lanes.shape
        hatched = np.flatnonzero(_RISING[frame.look] | _FALLING[frame.look])
        look = frame.look[hatched]
        rising, falling = _RISING[look], _FALLING[look]
        period = bars.period
        depths = self._depths(period, bars.stroke)
        wide = rising & falling
        cycle = 2 * period if wide.any() else period
        # places in `depths`: a crossed hatch has every other line only
        base = np.where(wide, 3 * period, 0)
        own = np.where(wide, 2 * period, period)
        down = hatched // columns * bars.pitch  # lines go on from row to row: bars may be thinner than their period
        x = hatched % columns + origin
        rise, fall = base + (x + down) % own, base + (x - down) % own + own
        colors = frame.stack.reshape(-1)
        for y in range(min(cycle, bars.bar)):
            line = frame.stack[0].copy()
            if len(hatched):
                up = np.where(rising, depths[rise + y % own], 0)
                depth = np.maximum(up, np.where(falling, depths[fall - y % own], 0))
                line[hatched] = colors[depth * len(line) + hatched]
            line[heads] = self._empty
            lanes[:, bars.top + y : bars.top + bars.bar : cycle] = line.reshape(rows, 1, columns)

    @staticmethod
    def _depths(period: int, stroke: float) -> Array:
        """How deep in a hatch line each place is: three periods of the usual hatch, then three of one twice as wide."""
        parts = []
        for length in (period, 2 * period):
            distance = np.minimum(np.arange(length), length - np.arange(length)) * np.sqrt(0.5)
            soft = np.clip(stroke / 2 + 0.5 - distance, 0.0, 1.0) * (DEPTHS - 1)
            parts.append(np.tile(np.rint(soft).astype(np.int64), 3))
        return np.concatenate(parts)

    def _waits(self, frame: _Frame) -> None:
        """The line of a request that waits, through the middle of its row."""
        bars = frame.bars
        waits = np.flatnonzero((frame.look == Look.LINE) & (frame.owner >= 0))
        colors = self._lines[frame.request[waits]]
        if bars.bar < LOW:
            own = self._own[frame.request[waits]]
            for y in range(bars.top, bars.top + bars.bar):
                frame.put(y, waits, packed(self._ground + 0.3 * own))
            return
        thick = max(1, round(bars.stroke))
        begin = bars.top + (bars.bar - thick) // 2
        for y in range(begin, begin + thick):
            frame.put(y, waits, colors)
            frame.put(y, frame.mixed, frame.mixed_line)

    def _lost(self, frame: _Frame) -> None:
        """The outline of what was thrown away, and the solid foot of the new tokens among those computed again."""
        bars = frame.bars
        lost = np.flatnonzero((frame.look == Look.CROSS) | (frame.look >= Look.AGAIN))
        if not len(lost):
            return
        columns, bottom = frame.lanes.shape[2], bars.top + bars.bar
        line = frame.stack[DEPTHS - 1, lost]
        frame.put(bars.top, lost, line)
        frame.put(bottom - 1, lost, line)
        x = lost % columns
        left = (x > 0) & (frame.owner[np.maximum(lost - 1, 0)] != frame.owner[lost])
        right = (x < columns - 1) & (frame.owner[np.minimum(lost + 1, len(frame.owner) - 1)] != frame.owner[lost])
        sides = (left | right) & (frame.look[lost] == Look.CROSS)
        for y in range(bars.top, bottom):
            frame.put(y, lost[sides], line[sides])
        again = lost[frame.look[lost] >= Look.AGAIN]
        foot = np.maximum(1, np.rint(NEW_SHARE[frame.look[again]] * bars.bar))
        for depth in range(int(foot.max()) if len(foot) else 0):
            deep = again[foot > depth]
            frame.put(bottom - 1 - depth, deep, self._tables[0, Look.SOLID, frame.request[deep]])

    def _borders(self, frame: _Frame, edges: Array) -> None:
        bars, (rows, _, columns) = frame.bars, frame.lanes.shape
        bar = frame.lanes[:, bars.top : bars.top + bars.bar, edges]
        busy = (frame.look != Look.LINE).reshape(rows, columns)[:, None, edges]
        muted = packed(unpacked(bar) * (1 - EDGE) + self._ground * EDGE)
        frame.lanes[:, bars.top : bars.top + bars.bar, edges] = np.where(busy, muted, bar)
