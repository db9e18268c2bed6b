"""The timeline: slots from top to bottom, time from left to right, what each slot computed when."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QHelpEvent,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app import theme
from app.panels.ink import Ink
from app.panels.timeline_cells import Array, Cell, TimelineCells
from app.panels.timeline_ink import Bars, TimelineInk
from app.panels.timeline_raster import raster
from app.panels.timeline_words import cell_words, nice_end, time_ticks
from engine import Record

SHORTEST = 1e-4  # seconds in sight at the deepest zoom
ZOOM_STEP = 1.25
PAN_STEP = 0.1
STEP_PIXELS = 6  # borders of steps are drawn once steps are so wide, those of much narrower ones left out
TALLEST, USUAL = 22, 14
SLOT_STEPS = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500)


class Timeline(QWidget):
    """Draws what it was fed, up to the cursor, over the seconds in range. It asks nobody anything.

    Until a range is set or chosen, it shows everything, from zero to a round number of seconds.
    """

    range_changed = Signal(float, float)  # seconds in sight, as the person chose them; `set_range` does not emit
    request_hovered = Signal(int)  # -1: none
    request_clicked = Signal(int)  # -1: beside all bars

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("timeline")
        self.setAccessibleName("Timeline")
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.cells = TimelineCells()
        self.empty_text = "Slots from top to bottom, time from left to right: nothing has run yet."
        self._slots = 1
        self._cursor: float | None = None
        self._selected: int | None = None
        self._hovered = -1
        self._range: tuple[float, float] | None = None
        self._extent = 0.0
        self._drag: tuple[QPointF, tuple[float, float]] | None = None
        self._dragged = False
        self._picture: QImage | None = None
        self._pixels: Array | None = None  # what the picture shows: it must outlive it
        theme.changes.theme_changed.connect(self.restyle)
        self.restyle()
        self._describe()

    # -- what is told ---------------------------------------------------------------------------------------------

    def feed(self, records: Iterable[Record], origin: float = 0.0) -> None:
        """Takes the next records of the trace, whose time `origin` is this timeline's zero. Costs O(their rows)."""
        steps, slots = len(self.cells.steps), self.slots
        self.cells.feed(records, origin)
        if len(self.cells.steps) != steps:
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

    def set_range(self, begin: float, end: float) -> None:
        """Shows these seconds, and no longer all. Emits nothing."""
        if not end > begin:
            raise ValueError(f"range {begin}–{end}: the end must be after the beginning")
        if (begin, end) != self._range:
            self._range = (float(begin), float(end))
            self._stale()

    def show_all(self) -> None:
        """Shows everything, and goes on to while more comes. Emits nothing."""
        if self._range is not None:
            self._range = None
            self._stale()

    def set_extent(self, seconds: float) -> None:
        """How long the longest lane is: "all" is at least so much."""
        if seconds != self._extent:
            self._extent = seconds
            if self._range is None:
                self._stale()

    def select(self, request: int | None) -> None:
        """Dims all other requests; None or -1: none is dimmed."""
        request = None if request is None or request < 0 else request
        if request != self._selected:
            self._selected = request
            self._learn()
            self._stale()

    @property
    def slots(self) -> int:
        return max(self._slots, self.cells.slots)

    @property
    def extent(self) -> float:
        """Seconds from zero to the last that there is to see."""
        return max(self.cells.end, self._extent)

    def range(self) -> tuple[float, float]:
        """The seconds in sight."""
        return self._range or (0.0, nice_end(self.extent))

    # -- geometry -------------------------------------------------------------------------------------------------

    def sizeHint(self) -> QSize:
        return QSize(theme.px(640), self.slots * theme.px(USUAL) + self._foot())

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(240), theme.px(48) + self._foot())

    def area(self) -> QRect:
        """Where the bars are."""
        pitch = self._bars().pitch / self._ratio()
        rows = math.ceil(self.slots / self._slots_a_row())
        return QRect(self._gutter, 0, max(1, self.width() - self._gutter - self._margin), max(1, round(rows * pitch)))

    def time_at(self, x: float) -> float:
        begin, end = self.range()
        area = self.area()
        return begin + (x - area.left()) / area.width() * (end - begin)

    def x_at(self, time: float) -> float:
        begin, end = self.range()
        area = self.area()
        return area.left() + (time - begin) / (end - begin) * area.width()

    def slot_at(self, y: float) -> int:
        """The slot of a height in the widget; -1 beside all."""
        slot = math.floor(y * self._ratio() / self._bars().pitch) * self._slots_a_row()
        return slot if 0 <= slot < self.slots else -1

    def _ratio(self) -> float:
        return self.devicePixelRatioF()

    def _foot(self) -> int:
        return theme.px(6) + math.ceil(self._ink.height)

    def _room(self) -> int:
        """Device pixels for the rows."""
        return max(1, int((self.height() - self._foot()) * self._ratio()))

    def _slots_a_row(self) -> int:
        return max(1, math.ceil(self.slots / self._room()))

    def _bars(self) -> Bars:
        scale = self._ratio() * theme.zoom()
        pitch = max(1, min(self._room() // math.ceil(self.slots / self._slots_a_row()), round(TALLEST * scale)))
        gap = 0 if pitch < 5 else 1 if pitch < 8 else max(2, round(pitch * 0.15))
        top = gap // 2
        return Bars(pitch, top, pitch - gap, max(4, round(6 * scale)), max(1.0, scale))

    # -- painting -------------------------------------------------------------------------------------------------

    def restyle(self) -> None:
        """Takes the theme's colours and fonts anew."""
        t = theme.current()
        self._ink = Ink(theme.ui(11))
        self._words = Ink(theme.ui(13))
        rule = theme.over(t.hairline, t.panel)
        self._paint = TimelineInk(_parts(t.panel), _parts(rule), _parts(t.secondary))
        self._colors: list[Array] = []
        self._place()
        self._stale()

    def _place(self) -> None:
        self._gutter = math.ceil(self._ink.width("0" * max(2, len(str(self.slots))))) + theme.px(8)
        self._margin = math.ceil(self._ink.width("0"))
        self.updateGeometry()

    def _stale(self) -> None:
        self._picture = None
        self.update()

    def _learn(self) -> None:
        for request in range(len(self._colors), self.cells.requests):
            self._colors.append(_parts(theme.request_color(request)))
        self._paint.learn(np.array(self._colors, np.float32).reshape(-1, 3), self._selected)

    def _draw(self) -> None:
        """Makes the picture of the bars."""
        area, bars, ratio = self.area(), self._bars(), self._ratio()
        columns = max(1, round(area.width() * ratio))
        rows = math.ceil(self.slots / self._slots_a_row())
        begin, end = self.range()
        until = math.inf if self._cursor is None else self._cursor
        if self._paint.known < self.cells.requests:
            self._learn()
        seen = raster(
            self.cells, begin, end, columns, rows, until=until, slots_a_row=self._slots_a_row(),
            gap=3 if bars.pitch >= 5 else columns,
        )  # fmt: skip
        scale = columns / (end - begin)
        edges = self._edges(begin, end, columns, STEP_PIXELS * ratio * theme.zoom())
        pixels = self._paint.paint(
            self.cells, seen, bars, rows * bars.pitch, origin=round(begin * scale), edges=edges
        )  # fmt: skip
        self._pixels = pixels
        height = rows * bars.pitch
        self._picture = QImage(pixels.data, columns, height, columns * 4, QImage.Format.Format_RGB32)
        self._picture.setDevicePixelRatio(ratio)

    def _edges(self, begin: float, end: float, columns: int, least: float) -> Array:
        """The columns in which steps meet that are wide enough to be told apart."""
        begins, ends = self.cells.step_begins, self.cells.step_ends
        first, last = np.searchsorted(ends, begin), np.searchsorted(begins, end)
        widths = (ends[first:last] - begins[first:last]) * columns / (end - begin)
        if len(widths) < 2 or len(widths) > columns or np.median(widths) < least:
            return np.zeros(0, np.int64)
        scale = columns / (end - begin)
        wide = widths >= least / 2
        meet = np.flatnonzero(wide[1:] & wide[:-1]) + first + 1
        x = np.floor((begins[meet] - begin) * scale + 0.5).astype(np.int64)
        return np.unique(x[(x >= 0) & (x < columns)])

    def paintEvent(self, event: QPaintEvent) -> None:
        t = theme.current()
        if self._picture is None and len(self.cells):
            self._draw()
        painter = QPainter(self)
        painter.fillRect(event.rect(), t.panel)
        if not len(self.cells):
            self._say_empty(painter)
            return
        area = self.area()
        if self._picture is not None:
            painter.drawImage(QPointF(area.topLeft()), self._picture)
        self._axes(painter, area)
        if self._cursor is not None:
            x = self.x_at(self._cursor)
            if area.left() <= x <= area.right() + 1:
                painter.fillRect(QRectF(round(x), area.top(), 1, area.height() + theme.px(3)), t.accent)
        if self.hasFocus():
            painter.setPen(QPen(t.accent, 1))
            painter.drawRect(QRectF(0.5, 0.5, self.width() - 1, self.height() - 1))

    def _axes(self, painter: QPainter, area: QRect) -> None:
        t, ink = theme.current(), self._ink
        painter.setFont(ink.font)
        painter.setPen(t.secondary)
        pitch = area.height() / self.slots
        step = next((s for s in SLOT_STEPS if s * pitch >= theme.px(28)), SLOT_STEPS[-1])
        cap = ink.metrics.capHeight()
        for slot in range(0, self.slots, step):
            name = str(slot + 1)
            middle = (slot + 0.5) * pitch
            baseline = min(max(middle + cap / 2, cap + 1), max(cap + 1, area.bottom()))
            ink.draw(painter, area.left() - theme.px(8) - ink.width(name), baseline, name)
        baseline = area.bottom() + 1 + theme.px(5) + ink.ascent
        last = -math.inf
        for time, words in time_ticks(*self.range(), area.width() / theme.px(96)):
            width = ink.width(words)
            x = max(float(area.left()), self.x_at(time) - (0 if time == 0 else width / 2))
            if x >= last + theme.px(12) and x + width <= self.width() - theme.px(2):
                ink.draw(painter, x, baseline, words)
                last = x + width

    def _say_empty(self, painter: QPainter) -> None:
        painter.setFont(self._words.font)
        painter.setPen(theme.current().secondary)
        box = self.rect().adjusted(theme.px(12), 0, -theme.px(12), 0)
        flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
        painter.drawText(box, flags, self.empty_text)

    def _describe(self) -> None:
        cells = self.cells
        self.setAccessibleDescription(
            f"{self.slots} slots, {len(cells.steps):,} steps in {cells.end:.1f} s. "
            "A and D pan, W and S zoom, F shows everything."
            if cells.steps
            else self.empty_text
        )

    # -- the person -----------------------------------------------------------------------------------------------

    def fit(self) -> None:
        """The selected request, or everything. Emits `range_changed`."""
        span = None if self._selected is None else self.cells.span(self._selected)
        if span is None:
            self._range = None
            self._stale()
            self.range_changed.emit(*self.range())
        else:
            margin = max(SHORTEST, 0.04 * (span[1] - span[0]))
            self._choose(span[0] - margin, span[1] + margin)

    def zoom_by(self, factor: float, x: float | None = None) -> None:
        """Shows `factor` times as much, the time at `x` (None: the middle) in its place. Emits `range_changed`."""
        begin, end = self.range()
        at = (begin + end) / 2 if x is None else self.time_at(x)
        span = max(end - begin, SHORTEST)
        factor = max(factor, SHORTEST / span)
        self._choose(at - (at - begin) * factor, at + (end - at) * factor)

    def pan_by(self, share: float) -> None:
        """Moves on by a share of what is in sight. Emits `range_changed`."""
        begin, end = self.range()
        self._choose(begin + share * (end - begin), end + share * (end - begin))

    def _choose(self, begin: float, end: float) -> None:
        """Shows these seconds as far as there are any."""
        whole = nice_end(self.extent)
        span = min(max(end - begin, SHORTEST), whole)
        begin = min(max(begin, 0.0), whole - span)
        if (begin, begin + span) != self.range():
            self._range = None if span >= whole else (begin, begin + span)
            self._stale()
            self.range_changed.emit(*self.range())

    def wheelEvent(self, event: QWheelEvent) -> None:
        turn = event.angleDelta()
        sideways = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier) or abs(turn.x()) > abs(turn.y())
        if sideways:
            self.pan_by(-(turn.x() or turn.y()) / 120 * PAN_STEP)
        elif turn.y():
            self.zoom_by(ZOOM_STEP ** (-turn.y() / 120), event.position().x())
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.modifiers() & ~(Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.KeypadModifier):
            super().keyPressEvent(event)
            return
        match event.key():
            case Qt.Key.Key_A | Qt.Key.Key_Left:
                self.pan_by(-PAN_STEP)
            case Qt.Key.Key_D | Qt.Key.Key_Right:
                self.pan_by(PAN_STEP)
            case Qt.Key.Key_W | Qt.Key.Key_Up:
                self.zoom_by(1 / ZOOM_STEP)
            case Qt.Key.Key_S | Qt.Key.Key_Down:
                self.zoom_by(ZOOM_STEP)
            case Qt.Key.Key_F:
                self.fit()
            case _:
                super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self._drag, self._dragged = (event.position(), self.range()), False

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._drag is not None and event.buttons() & Qt.MouseButton.LeftButton:
            pressed, (begin, end) = self._drag
            moved = event.position().x() - pressed.x()
            if self._dragged or abs(moved) >= theme.px(4):
                self._dragged = True
                self.setCursor(Qt.CursorShape.ClosedHandCursor)
                by = moved / self.area().width() * (end - begin)
                self._choose(begin - by, end - by)
            return
        self._hover(event.position())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() is not Qt.MouseButton.LeftButton or self._drag is None:
            return
        self._drag = None
        self.unsetCursor()
        if not self._dragged:
            cell = self.cell_at(event.position())
            self.request_clicked.emit(-1 if cell is None else cell.request)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._range = None
        self._stale()
        self.range_changed.emit(*self.range())

    def leaveEvent(self, event: QEvent) -> None:
        self._tell_hovered(-1)

    def cell_at(self, position: QPointF) -> Cell | None:
        """What is drawn at a place of the widget."""
        if not self.area().contains(position.toPoint()):
            return None
        time = self.time_at(position.x())
        if self._cursor is not None and time > self._cursor:
            return None
        return self.cells.at(time, self.slot_at(position.y()))

    def _hover(self, position: QPointF) -> None:
        cell = self.cell_at(position)
        self._tell_hovered(-1 if cell is None else cell.request)

    def _tell_hovered(self, request: int) -> None:
        if request != self._hovered:
            self._hovered = request
            self.request_hovered.emit(request)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            cell = self.cell_at(QPointF(event.pos()))
            QToolTip.showText(event.globalPos(), cell_words(cell) if cell else "", self)
            return True
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._stale()

    def focusInEvent(self, event: QFocusEvent) -> None:
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self.update()


def _parts(color: QColor) -> Array:
    return np.array((color.redF(), color.greenF(), color.blueF()), np.float32)
