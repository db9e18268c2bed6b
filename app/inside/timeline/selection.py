"""A stretch of a timeline that a person selects: Shift and drag, or Shift and the arrow keys; Esc lets it go."""

from PySide6.QtCore import QEvent, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter

from app.inside.timeline.keys import Key
from app.inside.timeline.slots import Timeline
from app.inside.timeline.viewport import VIEW_KEYS
from app.language import tr
from app.ui.look import theme

TINT = 0.16  # of the accent
SHIFT = Qt.KeyboardModifier.ShiftModifier


SELECTION_KEYS = (
    Key(tr("Select a stretch"), tr("select a stretch"), (tr("Shift+Drag"),)),
    Key(
        tr("Select step by step"),
        tr("select step by step"),
        ("Shift+Left", "Shift+Right"),
        (lambda view: view.grow_selection(-1), lambda view: view.grow_selection(1)),
    ),
    Key(tr("Let the selection go"), tr("let the selection go"), ("Esc",), (lambda view: view.set_selection(None),)),
)
KEYS = (*VIEW_KEYS, *SELECTION_KEYS)


class SelectableTimeline(Timeline):
    """`selection` in seconds; it grows from where it was begun."""

    keys = KEYS

    selection_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._anchor: float | None = None
        self._edge = 0.0
        self._selecting = False

    @property
    def selection(self) -> tuple[float, float] | None:
        """From when to when; None where nothing is selected."""
        if self._anchor is None or self._anchor == self._edge:
            return None
        return min(self._anchor, self._edge), max(self._anchor, self._edge)

    def set_selection(self, anchor: float | None, edge: float = 0.0) -> None:
        """Selects from one moment to another, or nothing."""
        before = self.selection
        self._anchor, self._edge = anchor, edge
        if self.selection != before:
            self.selection_changed.emit()
            self._describe()
            self.update()

    def clear(self) -> None:
        self.set_selection(None)
        super().clear()

    def request_span(self) -> tuple[float, float] | None:
        return self.selection or super().request_span()

    def paint_selection(self, painter: QPainter, area: QRect, bottom: int) -> None:
        """A tint over what is selected, with an edge at each side."""
        if self.selection is None:
            return
        left, right = (self.x_at(time) for time in self.selection)
        low, high = max(left, area.left()), min(right, area.right() + 1.0)
        accent = theme.current().accent
        if high > low:
            painter.fillRect(QRectF(low, 0, high - low, bottom), theme.faded(accent, TINT))
        for x in (left, right):
            if area.left() <= x <= area.right() + 1:
                painter.fillRect(QRectF(round(x), 0, 1, bottom), accent)

    # -- the person -----------------------------------------------------------------------------------------------

    def _moment(self, x: float) -> float:
        """The moment at a place, within the run."""
        return min(max(self.time_at(x), 0.0), self.cells.end)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton and event.modifiers() == SHIFT:
            self._selecting = True
            self.setCursor(Qt.CursorShape.SizeHorCursor)
            at = self._moment(event.position().x())
            self.set_selection(at, at)
        else:
            super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._selecting:
            self.set_selection(self._anchor, self._moment(event.position().x()))
        else:
            super().mouseMoveEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self._selecting and event.button() is Qt.MouseButton.LeftButton:
            self._selecting = False
            self.unsetCursor()
            if self.selection is None:
                self.set_selection(None)
        else:
            super().mouseReleaseEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.selection is None:
            event.ignore()  # the window has a use for it
        else:
            super().keyPressEvent(event)

    def grow_selection(self, steps: int) -> None:
        """Its edge goes on by so many steps, from the cursor where there is no selection yet."""
        if not self.cells.steps:
            return
        ends = self.cells.step_ends
        if self._anchor is None:
            self._anchor = self._edge = min(self.cells.end if self._cursor is None else self._cursor, self.cells.end)
        place = int(ends.searchsorted(self._edge + 1e-9, "right")) - 1 + steps
        edge = float(ends[min(place, len(ends) - 1)]) if place >= 0 else float(self.cells.step_begins[0])
        self.set_selection(self._anchor, edge)
        if self.selection is not None and not self.range()[0] <= self.value_of(edge) <= self.range()[1]:
            self.pan_by(0.1 * steps)

    def event(self, event: QEvent) -> bool:
        """Esc is the window's key too: while something is selected, it lets that go first."""
        if isinstance(event, QKeyEvent) and event.type() is QEvent.Type.ShortcutOverride and self.selection is not None:
            event.setAccepted(event.key() == Qt.Key.Key_Escape)
            return True
        return super().event(event)
