"""What widgets that draw themselves have in common."""

import re

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.ui.look import theme
from app.ui.look.font_face import Face, FontFace, wrapped
from app.ui.tips import show_tip

SENTENCES = re.compile(r"(?<=[.:;]) ")  # where an empty panel's words may end


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
        self._unsaid = ""  # an empty panel's words, where not all of them have room
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
        """In the middle, where there is nothing to draw; `margin` left and right in pixels of the design. What has no
        room is in the tip."""
        shown = write_middle(painter, self.rect(), words, face or self.empty, margin)
        self._unsaid = words if " ".join(shown) != words else ""

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, not self.sharp)
        self._unsaid = ""
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
            words = self.tip(QPointF(event.pos())) or self._unsaid
            show_tip(event.globalPos(), words, self)
            if words:
                return True
        return super().event(event)


class EmptyWords(Painted):
    """In the place of a picture: why there is nothing to see."""

    empty = Face(13)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._words = ""
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)

    def text(self) -> str:
        return self._words

    def say(self, words: str) -> None:
        if words != self._words:
            self._words = words
            self.setAccessibleName(words)
            self.update()

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        self.say_empty(painter, self._words)


def write_middle(painter: QPainter, box: QRect, words: str, face: FontFace, margin: float) -> list[str]:
    """Wrapped, in the middle of a box, as `fitting` there; `margin` left and right in pixels of the design. Returns the
    lines."""
    high = face.metrics.lineSpacing()
    for inset in (margin, 1):  # rather near to the rim than cut
        lines = fitting(words, face, box.width() - 2 * theme.px(inset), box.height())
        if lines and not lines[-1].endswith("…"):
            break
    top = box.top() + (box.height() - len(lines) * high) / 2
    for place, line in enumerate(lines):
        baseline = face.baseline(top + place * high, high)
        face.say(painter, box.left() + box.width() / 2, baseline, line, theme.current().secondary, before=0.5)
    return lines


def fitting(words: str, face: FontFace, width: float, height: float) -> list[str]:
    """The words in lines: as many of their sentences as have room, and of the first, where it has none, its beginning;
    nothing where no line has room."""
    most = int(height // face.metrics.lineSpacing()) or int(height >= face.ascent)
    parts = SENTENCES.split(words)
    for count in range(len(parts), 0, -1):
        begun = " ".join(parts[:count])
        told = begun if count == len(parts) else f"{begun[:-1]}."
        lines = wrapped(told, face, width)
        if len(lines) <= most and " ".join(lines) == told:
            return lines
    return wrapped(parts[0], face, width, most)
