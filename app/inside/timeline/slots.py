"""The timeline: slots from top to bottom, time from left to right, what each slot computed when."""

import math
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QResizeEvent
from PySide6.QtWidgets import QSizePolicy

from app.inside.timeline.axis import Axis
from app.inside.timeline.keys import told
from app.inside.timeline.picture.raster import raster
from app.inside.timeline.picture.shading import Bars, TimelineShading
from app.inside.timeline.runs import Cell
from app.inside.timeline.viewport import TimelineSpan
from app.inside.timeline.words import cell_words
from app.language import tr
from app.plot import axes
from app.plot.breaks import Break, breaks_in, draw_breaks, with_breaks
from app.plot.folds import NONE
from app.plot.image import PixelImage, parts_of
from app.ui.look import theme
from app.ui.look.font_face import Face
from engine.trace import Array, Record, Step

GAP = 3  # pixels from which on a run has a head that sets it apart from the last
LEAD = 8  # columns drawn again before what is new: a run's head and a hatch's stroke look back
STEP_PIXELS = 6  # borders of steps are drawn once steps are so wide, those of much narrower ones left out
TALLEST, LARGE_TALLEST, USUAL = 22, 40, 14
SLOT_STEPS = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500)


class Timeline(TimelineSpan):
    """Draws what it was fed, up to the cursor, over what is in range. It asks nobody anything, but for a step's record
    where the pointer rests: `step_reader` gives it by its place among all steps; without a reader they are kept."""

    request_clicked = Signal(int)  # -1: beside all bars

    sharp = True
    face = Face(11)
    empty = Face(13)

    def __init__(self, step_reader: Callable[[int], Step] | None = None) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.cells.step_reader = step_reader
        self.words_of: Callable[[Cell], str] = cell_words  # of what the pointer rests on
        self.empty_text = tr("Slots from top to bottom, time from left to right: nothing has run yet.")
        self._slots = 1
        self._placed = 0  # slots that the layout knows of
        self._cursor: float | None = None
        self._selected: int | None = None
        self._by_adapter = True
        self._area: QRect | None = None  # until the next change
        self._picture: PixelImage | None = None
        self._pixels: Array | None = None  # what the picture shows
        self._drawn: tuple[object, ...] = ()  # how the pixels were drawn
        self.setAccessibleDescription(self.empty_text)
        self.restyle()

    # -- what is told ---------------------------------------------------------------------------------------------

    def feed(self, records: Iterable[Record], origin: float = 0.0) -> None:
        """Takes the next records of the trace, whose time `origin` is this timeline's zero. Costs O(their rows)."""
        steps, slots = self.cells.steps, self.slots
        self.cells.feed(records, origin)
        if self.cells.steps != steps:
            if self.slots != slots:
                self._place()
            self._describe()
            self._stale()

    def clear(self) -> None:
        """Forgets the trace, the cursor and the selection; keeps slots and range."""
        self.cells.clear()
        self._cursor, self._selected = None, None
        self._place()
        self._describe()
        self._stale()

    def set_slots(self, slots: int) -> None:
        """How many rows there are at least; a slot beyond them that is used adds its own."""
        if slots != self._slots:
            self._slots = max(1, slots)
            self._place()
            self._stale()

    def set_cursor(self, seconds: float | None) -> None:
        """Draws only what had happened by then, with a hairline there; None: everything."""
        if seconds != self._cursor:
            self._cursor = seconds
            self._stale()

    def select(self, request: int | None) -> None:
        """Dims all other requests; None or -1: none is dimmed."""
        request = None if request is None or request < 0 else request
        if request != self._selected:
            self._selected = request
            self._learn()
            self._stale()

    def color_by_adapter(self, by_adapter: bool) -> None:
        """Whether bars have the colour of their adapter, where the model has any; else each request has its own."""
        self._by_adapter = by_adapter
        self._colors.clear()
        self._learn()
        self._stale()

    def color_of(self, request: int) -> QColor:
        """That of its bars: of its adapter's number where adapters are told apart, else its own."""
        return theme.request_color(self.cells.through.get(request, 0) if self.told_apart else request)

    @property
    def told_apart(self) -> tuple[str, ...]:
        """The adapters whose colours the bars have; empty where each request has its own."""
        return self.cells.adapters if self._by_adapter else ()

    @property
    def slots(self) -> int:
        return max(self._slots, self.cells.slots)

    # -- geometry -------------------------------------------------------------------------------------------------

    def sizeHint(self) -> QSize:
        return QSize(theme.px(640), self.slots * theme.px(USUAL) + self._foot())

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(240), theme.px(48) + self._foot())

    def area(self) -> QRect:
        """Where the bars are."""
        if self._area is None:
            pitch = self._bars().pitch / self._ratio()
            rows = math.ceil(self.slots / self._slots_a_row())
            gutter, margin = self._gutter(), math.ceil(self.face.width("0"))
            width = max(1, self.width() - gutter - margin)
            self._area = QRect(gutter, self._top(), width, max(1, round(rows * pitch)))
        return self._area

    def slot_at(self, y: float) -> int:
        """The slot of a height in the widget; -1 beside all."""
        slot = math.floor((y - self._top()) * self._ratio() / self._bars().pitch) * self._slots_a_row()
        return slot if 0 <= slot < self.slots else -1

    def _ratio(self) -> float:
        return self.devicePixelRatioF()

    def _top(self) -> int:
        """What lies above the rows."""
        return 0

    def _foot(self) -> int:
        """What lies below them."""
        return theme.px(6) + math.ceil(self.face.height)

    def _room(self) -> int:
        """Device pixels for the rows."""
        return max(1, int((self.height() - self._top() - self._foot()) * self._ratio()))

    def _slots_a_row(self) -> int:
        return max(1, math.ceil(self.slots / self._room()))

    def _bars(self) -> Bars:
        scale = self._ratio() * theme.zoom()
        large = self.shared or theme.presenting()  # a lane's few slots are what there is to see
        tallest = round((LARGE_TALLEST if large else TALLEST) * scale)
        pitch = max(1, min(self._room() // math.ceil(self.slots / self._slots_a_row()), tallest))
        gap = 0 if pitch < 5 else 1 if pitch < 8 else max(2, round(pitch * 0.15))
        top = gap // 2
        return Bars(pitch, top, pitch - gap, max(4, round(6 * scale)), max(1.0, scale))

    # -- painting -------------------------------------------------------------------------------------------------

    def restyle(self) -> None:
        t = theme.current()
        rule = theme.over(t.hairline, t.panel)
        self._paint = TimelineShading(*map(parts_of, (t.panel, rule, t.secondary)))
        self._colors: list[Array] = []
        self._stale()
        super().restyle()

    def _gutter(self) -> int:
        """Pixels left of the bars, for the slots' numbers; one is left before the first digit."""
        return math.ceil(self.face.width("0" * max(2, len(str(self.slots))))) + theme.px(9)

    def _place(self) -> None:
        self._area = None
        if self.slots != self._placed:  # each call has the whole window laid out anew
            self._placed = self.slots
            self.updateGeometry()

    def _stale(self) -> None:
        self._picture = self._area = None
        self.update()

    def _learn(self) -> None:
        for request in range(len(self._colors), self.cells.requests):
            self._colors.append(parts_of(self.color_of(request)))
        self._paint.learn(np.array(self._colors, np.float32).reshape(-1, 3), self._selected)

    def _draw(self) -> PixelImage:
        """The picture of the bars."""
        area, bars, ratio = self.area(), self._bars(), self._ratio()
        columns = max(1, round(area.width() * ratio))
        rows = math.ceil(self.slots / self._slots_a_row())
        begin, end = self.range()
        if self._paint.known < self.cells.requests:
            self._learn()
        scale, until, each = columns / (end - begin), self._until(), self._slots_a_row()
        sight = (begin, end, columns, rows)
        key = (*sight, bars, each, self.axis, until, self._selected, self._paint)
        first = 0  # the columns before it are drawn already, and nothing in them has changed
        if key == self._drawn and self._pixels is not None and self.axis is Axis.TIME:
            # a run that grows to GAP pixels gets a head where it began
            first = int(min(max((self.value_of(self.cells.changed) - begin) * scale - GAP - 1, 0), columns))
        self._drawn, self.cells.changed = key, math.inf
        left = max(0, first - LEAD)
        if left < columns:
            gap = GAP if bars.pitch >= 5 else columns
            how = partial(raster, until=until, slots_a_row=each, gap=gap, axis=self.axis, folds=self.folds)
            seen = how(self.cells, *sight, left=left)
            edges = self._edges(begin, end, columns, STEP_PIXELS * ratio * theme.zoom())
            origin = round(begin * scale) + left
            pixels = self._paint.paint(self.cells, seen, bars, origin, edges[edges >= left] - left)
            if first and self._pixels is not None:
                self._pixels[:, first:] = pixels[:, first - left :]
            else:
                self._pixels = pixels.copy()  # the next picture takes its memory
        assert self._pixels is not None
        return PixelImage(self._pixels, ratio)

    def _until(self) -> float:
        """What happened later is not drawn."""
        return math.inf if self._cursor is None else self._cursor

    def _edges(self, begin: float, end: float, columns: int, least: float) -> Array:
        """The columns in which steps meet that are wide enough to be told apart."""
        scale = columns / (end - begin)
        if self.axis is Axis.STEPS:
            meet = np.arange(max(0, math.ceil(begin)), min(self.cells.steps, math.floor(end)) + 1)
            return self._columns_of(meet, begin, scale, columns) if scale >= least else np.zeros(0, np.int64)
        begins, ends = self.cells.step_begins, self.cells.step_ends
        first, last = np.searchsorted(ends, self.moment_of(begin)), np.searchsorted(begins, self.moment_of(end))
        widths = (ends[first:last] - begins[first:last]) * scale
        if len(widths) < 2 or len(widths) > columns or np.median(widths) < least:
            return np.zeros(0, np.int64)
        wide = widths >= least / 2
        meet = self.folds.values(begins[np.flatnonzero(wide[1:] & wide[:-1]) + first + 1])
        return self._columns_of(meet, begin, scale, columns)

    def _columns_of(self, values: Array, begin: float, scale: float, columns: int) -> Array:
        x = np.floor((values - begin) * scale + 0.5).astype(np.int64)
        return np.unique(x[(x >= 0) & (x < columns)])

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        painter.fillRect(dirty, theme.current().panel)
        if not len(self.cells):
            self.say_empty(painter, self.empty_text)
            return
        self._paint_rows(painter)
        area = self.area()
        self._paint_slots(painter, area)
        draw_breaks(painter, self._breaks(), QRectF(area), area.bottom() + 1)
        self._paint_ticks(painter, area, area.bottom() + 1)
        if self._cursor is not None:
            self._paint_cursor(painter, self.x_at(self._cursor), area.top(), area.height() + theme.px(3))
        self.paint_focus(painter)

    def _paint_rows(self, painter: QPainter) -> None:
        if self._picture is None:
            self._picture = self._draw()
        painter.drawImage(QPointF(self.area().topLeft()), self._picture)

    def _paint_cursor(self, painter: QPainter, x: float, top: int, height: int) -> None:
        area = self.area()
        if area.left() <= x <= area.right() + 1:
            painter.fillRect(QRectF(round(x), top, round(theme.stroke(2 / 3)), height), theme.current().accent)

    def _paint_slots(self, painter: QPainter, area: QRect) -> None:
        """The slots' numbers."""
        face, pitch = self.face, area.height() / self.slots
        step = next((s for s in SLOT_STEPS if s * pitch >= theme.px(28)), SLOT_STEPS[-1])
        highest = area.top() + face.cap + 1
        for slot in range(0, self.slots, step):
            middle = area.top() + (slot + 0.5) * pitch
            baseline = min(max(middle + face.cap / 2, highest), max(highest, area.bottom()))
            face.say(painter, area.left() - theme.px(8), baseline, str(slot + 1), theme.current().secondary, before=1)

    def _ticks(self, count: float) -> list[tuple[float, str]]:
        """At most about so many values of the axis, with their words."""
        return self.folds.ticks(*self.range(), count)

    def _breaks(self) -> list[Break]:
        """Where the axis is folded."""
        return breaks_in(self.folds if self.axis is Axis.TIME else NONE, *self.range(), QRectF(self.area()))

    def _paint_ticks(self, painter: QPainter, area: QRect, top: int) -> None:
        """The axis' words."""
        ticks = [(self.value_x(value), words) for value, words in self._ticks(area.width() / theme.px(96))]
        ticks = with_breaks(ticks, self._breaks(), QRectF(area), self.face, theme.px(12))
        baseline, right = top + theme.px(5) + self.face.ascent, self.width() - theme.px(2)
        axes.foot(painter, self.face, ticks, baseline, area.left(), right, apart=theme.px(12), moved=False)

    def _describe(self) -> None:
        cells, said = self.cells, self.empty_text
        if cells.steps:
            shown, more = self._told()
            said = tr(
                "{slots} slots, {steps:,} steps in {seconds:.1f} s.",
                slots=self.slots,
                steps=cells.steps,
                seconds=cells.end,
            )
            said = " ".join(filter(None, (said, shown, told(self.keys), more)))
        self.setAccessibleDescription(said)

    def _told(self) -> tuple[str, str]:
        """What its description says beside the run and the keys, before these and after."""
        return "", ""

    # -- the person -----------------------------------------------------------------------------------------------

    def request_span(self) -> tuple[float, float] | None:
        return None if self._selected is None else self.cells.span(self._selected)

    def clicked(self, position: QPointF) -> None:
        cell = self.cell_at(position)
        self.request_clicked.emit(-1 if cell is None else cell.request)

    def cell_at(self, position: QPointF) -> Cell | None:
        """What is drawn at a place of the widget."""
        if not self.area().contains(position.toPoint()):
            return None
        time = self.time_at(position.x())
        return self.cells.at(time, self.slot_at(position.y())) if time <= self._until() else None

    def tip(self, at: QPointF) -> str:
        cell = self.cell_at(at)
        return self.words_of(cell) if cell is not None else ""

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._stale()
