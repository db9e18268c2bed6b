"""What widgets that draw themselves have in common."""

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QToolTip, QWidget

from app.ui import theme
from app.ui.font_face import Face, FontFace


class Painted(QWidget):
    """A subclass answers `paint`, and `tip` for what lies under the pointer; it declares its fonts as `Face`s.

    Another theme or zoom has it laid out and painted anew. `sharp` ones are painted without antialiasing. `hint` and
    `least` are its sizes; `focus_ring`: the corners of the ring that shows the focus, None where the subclass shows it
    its own way. All in pixels of the design.
    """

    sharp = False
    focus_ring: float | None = None
    hint: tuple[float, float] | None = None
    least: tuple[float, float] | None = None
    empty = Face(12)

    def __init__(self, name: str = "", said: str = "", *, focus: bool = False, parent: QWidget | None = None) -> None:
        """`name` for tests and styles, `said` for screen readers; with `focus` Tab and clicks reach it."""
        super().__init__(parent)
        self.setObjectName(name)
        self.setAccessibleName(said)
        if focus:
            self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        theme.changes.theme_changed.connect(self.restyle)

    def restyle(self) -> None:
        """The theme or the zoom is another."""
        self.updateGeometry()
        self.update()

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        """Paints at least what is in `dirty`."""

    def tip(self, at: QPointF) -> str:
        """In words; "" leaves it to what the widget lies in."""
        return ""

    def paint_focus(self, painter: QPainter, radius: float = 0) -> None:
        """A ring along its rim, its corners rounded by so many pixels of the design."""
        if self.hasFocus():
            painter.setPen(QPen(theme.current().accent, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            ring, round_by = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), theme.px(radius)
            painter.drawRoundedRect(ring, round_by, round_by)

    def say_empty(self, painter: QPainter, words: str, *, margin: float = 12, face: FontFace | None = None) -> None:
        """In the middle, where there is nothing to draw; `margin` left and right in pixels of the design."""
        write_middle(painter, self.rect(), words, face or self.empty, margin)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, not self.sharp)
        self.paint(painter, event.rect())
        if self.focus_ring is not None:
            self.paint_focus(painter, self.focus_ring)
        painter.end()

    def sizeHint(self) -> QSize:
        return super().sizeHint() if self.hint is None else QSize(*map(theme.px, self.hint))

    def minimumSizeHint(self) -> QSize:
        return super().minimumSizeHint() if self.least is None else QSize(*map(theme.px, self.least))

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            words = self.tip(QPointF(event.pos()))
            QToolTip.showText(event.globalPos(), words, self)
            if words:
                return True
        return super().event(event)


def write_middle(painter: QPainter, box: QRect, words: str, face: FontFace, margin: float) -> None:
    """Wrapped, in the middle of a box; `margin` left and right in pixels of the design."""
    painter.setFont(face.font)
    painter.setPen(theme.current().secondary)
    inset = theme.px(margin)
    flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
    painter.drawText(QRectF(box).adjusted(inset, 0, -inset, 0), flags, words)
