"""What of a timeline is in sight, and the ways in which a person chooses it: wheel, drag and keys."""

from abc import abstractmethod
from collections.abc import Callable, Sequence

from PySide6.QtCore import QPointF, QRect, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QWheelEvent

from app.inside.timeline.axis import Axis, places_of, times_of
from app.inside.timeline.keys import Key, heard
from app.inside.timeline.runs import TimelineCells
from app.language import tr
from app.plot.folds import NONE, Folds
from app.plot.scales import nice_end
from app.ui.look import theme
from app.ui.painted import Painted

ZOOM_STEP = 1.25
PAN_STEP = 0.1


def _pan(by: float) -> Callable[["TimelineSpan"], None]:
    return lambda view: view.pan_by(by)


def _zoom(factor: float) -> Callable[["TimelineSpan"], None]:
    return lambda view: view.zoom_by(factor)


VIEW_KEYS = (
    Key(tr("Earlier, later"), tr("earlier, later"), ("A", "D", "Left", "Right"), 2 * (_pan(-PAN_STEP), _pan(PAN_STEP))),
    Key(
        tr("Closer, wider"), tr("closer, wider"), ("W", "S", "Up", "Down"), 2 * (_zoom(1 / ZOOM_STEP), _zoom(ZOOM_STEP))
    ),
    Key(
        tr("What is selected, or everything"),
        tr("what is selected, or everything"),
        ("0", "Home"),
        2 * (lambda view: view.fit(),),
    ),
)


class TimelineSpan(Painted):
    """The part of the axis that is in sight. Until one is set or chosen, it is all, from zero to a round number.

    The axis counts seconds, or steps; `range` and what chooses it are in its unit, moments are always seconds. Long
    idle time takes little of it, but where the axis is shared.
    """

    keys: Sequence[Key] = VIEW_KEYS
    range_changed = Signal(float, float)  # as the person chose it; `set_range` does not emit

    def __init__(self) -> None:
        super().__init__("timeline", tr("Timeline"), focus=True)
        self.setMouseTracking(True)
        self.cells = TimelineCells()
        self.axis = Axis.TIME
        self.shared = False  # with others on a page that scrolls: the wheel is the page's, with Ctrl it zooms
        self.duration = 0.0  # seconds that there are to see, whatever was fed
        self._folds = NONE
        self._range: tuple[float, float] | None = None
        self._drag: tuple[QPointF, tuple[float, float]] | None = None
        self._dragged = False

    # -- what the widget says -------------------------------------------------------------------------------------

    @abstractmethod
    def area(self) -> QRect:
        """Where the bars are."""

    @abstractmethod
    def request_span(self) -> tuple[float, float] | None:
        """The seconds from the selected request's first cell to its last."""

    @abstractmethod
    def clicked(self, position: QPointF) -> None:
        """The person pressed and released without dragging."""

    @abstractmethod
    def _stale(self) -> None:
        """What is in sight changed."""

    # -- the range ------------------------------------------------------------------------------------------------

    @property
    def folds(self) -> Folds:
        """The idle time that the axis of seconds folds; lanes that share one clock fold none."""
        return NONE if self.shared else self._folds

    def set_folds(self, folds: Folds) -> None:
        if len(folds) != len(self._folds):
            self._folds = folds
            self._stale()

    @property
    def extent(self) -> float:
        """From zero to the last that there is to see."""
        return self.value_of(max(self.cells.end, self.duration)) if self.axis is Axis.TIME else float(self.cells.steps)

    def range(self) -> tuple[float, float]:
        """What is in sight."""
        return self._range or (0.0, nice_end(self.extent))

    def set_range(self, begin: float, end: float) -> None:
        """Shows this part, and no longer all. Emits nothing."""
        if not end > begin:
            raise ValueError(f"range {begin}–{end}: the end must be after the beginning")
        if (begin, end) != self._range:
            self._range = (float(begin), float(end))
            self._stale()

    def value_at(self, x: float) -> float:
        """What the axis shows at this place."""
        begin, end = self.range()
        area = self.area()
        return begin + (x - area.left()) / area.width() * (end - begin)

    def value_x(self, value: float) -> float:
        begin, end = self.range()
        area = self.area()
        return area.left() + (value - begin) / (end - begin) * area.width()

    def time_at(self, x: float) -> float:
        return self.moment_of(self.value_at(x))

    def x_at(self, time: float) -> float:
        return self.value_x(self.value_of(time))

    def value_of(self, time: float) -> float:
        """Where a moment lies on the axis."""
        if self.axis is Axis.TIME:
            return float(self.folds.values(time))
        return float(places_of(self.cells.step_begins, self.cells.step_ends, time))

    def moment_of(self, value: float) -> float:
        """The moment at which the axis has a value."""
        if self.axis is Axis.TIME:
            return float(self.folds.times(value))
        return float(times_of(self.cells.step_begins, self.cells.step_ends, value))

    # -- the person -----------------------------------------------------------------------------------------------

    def see_all(self) -> None:
        """Everything. Emits `range_changed`."""
        self._range = None
        self._stale()
        self.range_changed.emit(*self.range())

    def fit(self) -> None:
        """The selected request, or everything. Emits `range_changed`."""
        span = self.request_span()
        if span is None:
            self.see_all()
            return
        begin, end = (self.value_of(time) for time in span)
        margin = max(self.axis.shortest, 0.04 * (end - begin))
        self._choose(begin - margin, end + margin)

    def zoom_by(self, factor: float, x: float | None = None) -> None:
        """Shows `factor` times as much, the time at `x` (None: the middle) in its place. Emits `range_changed`."""
        begin, end = self.range()
        at = (begin + end) / 2 if x is None else self.value_at(x)
        span = max(end - begin, self.axis.shortest)
        factor = max(factor, self.axis.shortest / span)
        self._choose(at - (at - begin) * factor, at + (end - at) * factor)

    def pan_by(self, share: float) -> None:
        """Moves on by a share of what is in sight. Emits `range_changed`."""
        begin, end = self.range()
        self._choose(begin + share * (end - begin), end + share * (end - begin))

    def _choose(self, begin: float, end: float) -> None:
        """Shows this part as far as there is any."""
        whole = nice_end(self.extent)
        span = min(max(end - begin, self.axis.shortest), whole)
        begin = min(max(begin, 0.0), whole - span)
        if (begin, begin + span) != self.range():
            self._range = None if span >= whole else (begin, begin + span)
            self._stale()
            self.range_changed.emit(*self.range())

    def wheelEvent(self, event: QWheelEvent) -> None:
        turn = event.angleDelta()
        if self.shared and not event.modifiers():
            event.ignore()
            return
        sideways = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier) or abs(turn.x()) > abs(turn.y())
        if sideways:
            self.pan_by(-(turn.x() or turn.y()) / 120 * PAN_STEP)
        elif turn.y():
            self.zoom_by(ZOOM_STEP ** (-turn.y() / 120), event.position().x())
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        act = heard(self.keys, event)
        if act is not None:
            act(self)
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self._drag, self._dragged = (event.position(), self.range()), False

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._drag is None or not event.buttons() & Qt.MouseButton.LeftButton:
            return
        pressed, (begin, end) = self._drag
        moved = event.position().x() - pressed.x()
        if self._dragged or abs(moved) >= theme.px(4):
            self._dragged = True
            self.setCursor(Qt.CursorShape.ClosedHandCursor)
            by = moved / self.area().width() * (end - begin)
            self._choose(begin - by, end - by)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() is not Qt.MouseButton.LeftButton or self._drag is None:
            return
        self._drag = None
        self.unsetCursor()
        if not self._dragged:
            self.clicked(event.position())

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.see_all()
