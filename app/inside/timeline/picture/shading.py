"""From a timeline's raster to its picture: colours and hatches, as 32-bit pixels 0xffRRGGBB. No Qt in here.

Hatches are bound to the time axis, so that they move with their bars. Of a bar's lines only as many differ as the
hatch's period, and each is painted once for all rows.
"""

from dataclasses import dataclass

import numpy as np

from app.inside.timeline.picture.raster import Raster
from app.inside.timeline.runs import NEW_SHARE, SHADES, Shade, TimelineCells
from app.plot.pixels import packed, slanted, unpacked
from engine.trace import Array

DEPTHS = 4  # of a hatch line's soft edge; the last is the line itself
LEAST = 0.4  # a pixel is at least so full, however short what ran in it
EDGE = 0.4  # the border between two steps takes so much of the bar's colour away
DIMMED = 0.55
WAITING = 0.8
BETWEEN, LINE = 0.34, 0.92  # a hatch's strength between its lines and in them: so strong that it is seen on low bars
LOW = 5  # a bar of fewer pixels has no room for a line in its middle
_AGAIN = SHADES - Shade.AGAIN

# How much of the request's colour, and of the neutral one, each shade has: between its hatch lines and in them.
_OWN = np.array([[1, 0.34, 0, 0, 0, *[0.14] * _AGAIN], [1, 0.92, 0, 0.8, 0, *[0.72] * _AGAIN]], np.float32)
_NEUTRAL = np.array([[0, 0, BETWEEN, 0, 0, *[0] * _AGAIN], [0, 0, LINE, 0, 0, *[0] * _AGAIN]], np.float32)
_UP = np.arange(SHADES) == Shade.HATCH
_DOWN = np.arange(SHADES) == Shade.GREY
_CROSSED = (np.arange(SHADES) == Shade.CROSS) | (np.arange(SHADES) >= Shade.AGAIN)


_OWN_MEAN = (0.65 * _OWN[0] + 0.35 * _OWN[1])[: Shade.AGAIN]
_NEUTRAL_MEAN = (0.65 * _NEUTRAL[0] + 0.35 * _NEUTRAL[1])[: Shade.AGAIN]


def line_depths(period: int, stroke: float) -> Array:
    """How deep in a line of a hatch each pixel of its period is, up to `DEPTHS` - 1."""
    return np.rint(slanted(period, stroke) * (DEPTHS - 1)).astype(np.int64)


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
    """One picture under way. By pixel, flat: `owner`, `shade` and `request`, and `color` between its hatch's lines."""

    bars: Bars
    lanes: Array
    owner: Array
    shade: Array
    request: Array
    color: Array
    beside: Array  # pixels in which a bar is beside a waiting line, and what they show in the middle of their row
    beside_line: Array

    def put(self, y: int, pixels: Array, colors: Array) -> None:
        """Colours these pixels on one line of their rows."""
        columns = self.lanes.shape[2]
        self.lanes[pixels // columns, y, pixels % columns] = colors


@dataclass(slots=True)
class _Hatch:
    """`colors`: of all pixels between the lines, then at each depth up to the line. `depths`: where a depth's colours
    begin, by phase, over two periods. `rise`, `fall`: the phases of the lines in the bars' first line."""

    pixels: Array
    colors: Array
    period: int
    depths: Array
    places: Array
    rise: Array | None
    fall: Array | None

    def line(self, y: int) -> Array:
        """Each pixel's colour on the bars' line `y`."""
        y %= self.period
        depth = self.depths[y:][self.rise] if self.rise is not None else np.int64(0)
        if self.fall is not None:
            depth = np.maximum(depth, self.depths[self.period - y :][self.fall])
        return np.asarray(self.colors[depth + self.places])


class TimelineShading:
    """The colours of every request so far. Make a new one when the theme changes; components are 0 to 1."""

    def __init__(self, ground: Array, rule: Array, neutral: Array) -> None:
        """`rule`: the hairline under each row; `neutral`: the colour of what belongs to no request."""
        self._ground, self._neutral = np.asarray(ground, np.float32), np.asarray(neutral, np.float32)
        self._empty, self._rule = packed(self._ground), packed(np.asarray(rule, np.float32))
        self._own = np.zeros((0, 3), np.float32)  # difference from the ground
        self._tables = np.zeros((DEPTHS, SHADES, 0), np.uint32)
        self._lines = np.zeros(0, np.uint32)
        self._picture = np.zeros((0, 0), np.uint32)

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
        share = np.arange(DEPTHS, dtype=np.float32)[:, None] / (DEPTHS - 1)
        own, grey = (part[0] + share * (part[1] - part[0]) for part in (_OWN, _NEUTRAL))
        self._tables = packed(self._ground + own[..., None, None] * self._own + grey[..., None, None] * neutral)
        self._lines = packed(self._ground + WAITING * self._own)

    def paint(self, cells: TimelineCells, seen: Raster, bars: Bars, origin: int, edges: Array) -> Array:
        """The picture [rows * pitch, columns]; the next of its size takes its memory.

        Time zero is at column `-origin`; in the columns `edges` steps meet.
        """
        rows, columns = seen.owner.shape
        height = rows * bars.pitch
        if self._picture.shape != (height, columns):
            self._picture = np.empty((height, columns), np.uint32)
        picture = self._picture
        picture[:] = self._empty
        lanes = picture.reshape(rows, bars.pitch, columns)
        if bars.pitch >= LOW:
            lanes[:, -1] = self._rule
        busy = np.flatnonzero(seen.owner >= 0)
        if not len(busy):
            return picture
        frame = self._frame(cells, seen, bars, lanes, busy)
        self._fill(frame, seen.heads, origin)
        self._waits(frame)
        self._lost(frame)
        if len(edges):
            self._borders(frame, edges)
        return picture

    def _frame(self, cells: TimelineCells, seen: Raster, bars: Bars, lanes: Array, busy: Array) -> _Frame:
        owner = seen.owner.ravel()
        shade = np.full(len(owner), Shade.LINE, np.uint8)
        request = np.zeros(len(owner), np.int32)
        color = np.full(len(owner), self._empty, np.uint32)
        shade[busy], request[busy] = cells.shade[owner[busy]], cells.request[owner[busy]]
        color[busy] = self._tables[0].reshape(-1)[shade[busy].astype(np.int32) * self.known + request[busy]]
        frame = _Frame(bars, lanes, owner, shade, request, color, seen.mixed[:0], color[:0])
        if len(seen.mixed):
            self._mix(frame, seen.mixed, seen.shares)
        return frame

    def _mix(self, frame: _Frame, mixed: Array, shares: Array) -> None:
        """The colours of pixels that several shades share: as much of each as its share, and no hatch."""
        total = shares.sum(axis=0)
        boost = np.where(total < LEAST, LEAST / np.maximum(total, 1e-9), 1.0)
        own, neutral = (
            sum((amount[shade] * shares[shade] for shade in np.flatnonzero(amount)), np.zeros(1, np.float32)) * boost
            for amount in (_OWN_MEAN, _NEUTRAL_MEAN)
        )
        request = frame.request[mixed]
        frame.color[mixed] = self._blend(own, neutral, request)
        waits = np.flatnonzero(shares[Shade.LINE])
        line = np.minimum(1.0, own[waits] + WAITING * boost[waits] * shares[Shade.LINE, waits])
        frame.beside, frame.beside_line = mixed[waits], self._blend(line, neutral[waits], request[waits])
        alone = shares[Shade.LINE] >= 0.999 * total
        frame.shade[mixed] = np.where(alone, Shade.LINE, Shade.SOLID)

    def _blend(self, own: Array, neutral: Array, request: Array) -> Array:
        """Pixels of so much of each request's colour and so much of the neutral one."""
        result = np.full(len(own), 0xFF000000, np.uint32)
        grey = self._neutral - self._ground
        for part, shift in enumerate((16, 8, 0)):
            level = self._own[:, part][request]
            level *= own
            level += self._ground[part] + neutral * grey[part]
            level *= 255
            level += 0.5
            result |= np.clip(level, 0, 255, out=level).astype(np.uint32) << np.uint32(shift)
        return result

    def _fill(self, frame: _Frame, heads: Array, origin: int) -> None:
        """All bars, each line of a hatch's period once; a run's head is empty, which sets it apart from the last."""
        bars, lanes = frame.bars, frame.lanes
        rows, _, columns = lanes.shape
        hatches = [hatch for which in (_UP, _DOWN, _CROSSED) if (hatch := self._hatch(frame, which, origin))]
        cycle = max((hatch.period for hatch in hatches), default=1)
        line = np.empty_like(frame.color)
        for y in range(min(cycle, bars.bar)):
            line[:] = frame.color
            for hatch in hatches:
                line[hatch.pixels] = hatch.line(y)
            line[heads] = self._empty
            lanes[:, bars.top + y : bars.top + bars.bar : cycle] = line.reshape(rows, 1, columns)

    def _hatch(self, frame: _Frame, which: Array, origin: int) -> _Hatch | None:
        """One kind of hatch, on all bars that have it; a crossed one is twice as wide."""
        pixels = np.flatnonzero(which[frame.shade])
        if not len(pixels):
            return None
        bars, columns = frame.bars, frame.lanes.shape[2]
        period = bars.period * (2 if which is _CROSSED else 1)
        places = frame.shade[pixels].astype(np.int32) * self.known + frame.request[pixels]
        colors = np.concatenate([table.reshape(-1)[places] for table in self._tables])
        depth = line_depths(period, bars.stroke)
        # lines go on from row to row: bars may be thinner than the period
        row = pixels // columns
        down, x = row * bars.pitch, pixels - row * columns + origin
        rise = None if which is _DOWN else (x + down) % period
        fall = None if which is _UP else (x - down) % period
        return _Hatch(pixels, colors, period, np.tile(depth * len(pixels), 2), np.arange(len(pixels)), rise, fall)

    def _waits(self, frame: _Frame) -> None:
        """The line of a request that waits, through the middle of its row."""
        bars = frame.bars
        waits = np.flatnonzero((frame.shade == Shade.LINE) & (frame.owner >= 0))
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
            frame.put(y, frame.beside, frame.beside_line)

    def _lost(self, frame: _Frame) -> None:
        """The outline of what was thrown away, and the solid foot of the new tokens among those computed again."""
        bars = frame.bars
        lost = np.flatnonzero(_CROSSED[frame.shade])
        if not len(lost):
            return
        columns, bottom = frame.lanes.shape[2], bars.top + bars.bar
        line = self._tables[DEPTHS - 1, frame.shade[lost], frame.request[lost]]
        frame.put(bars.top, lost, line)
        frame.put(bottom - 1, lost, line)
        x = lost % columns
        left = (x > 0) & (frame.owner[np.maximum(lost - 1, 0)] != frame.owner[lost])
        right = (x < columns - 1) & (frame.owner[np.minimum(lost + 1, len(frame.owner) - 1)] != frame.owner[lost])
        sides = (left | right) & (frame.shade[lost] == Shade.CROSS)
        for y in range(bars.top, bottom):
            frame.put(y, lost[sides], line[sides])
        again = lost[frame.shade[lost] >= Shade.AGAIN]
        foot = np.maximum(1, np.rint(NEW_SHARE[frame.shade[again]] * bars.bar))
        for depth in range(int(foot.max()) if len(foot) else 0):
            deep = again[foot > depth]
            frame.put(bottom - 1 - depth, deep, self._tables[0, Shade.SOLID, frame.request[deep]])

    def _borders(self, frame: _Frame, edges: Array) -> None:
        bars, (rows, _, columns) = frame.bars, frame.lanes.shape
        bar = frame.lanes[:, bars.top : bars.top + bars.bar, edges]
        busy = (frame.shade != Shade.LINE).reshape(rows, columns)[:, None, edges]
        muted = packed(unpacked(bar) * (1 - EDGE) + self._ground * EDGE)
        frame.lanes[:, bars.top : bars.top + bars.bar, edges] = np.where(busy, muted, bar)
