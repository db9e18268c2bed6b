"""The kernels of a step's forward as bars: what each took, and of it, solid, what this machine needs at the least."""

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from app.inside.step.kernels import KernelLine
from app.inside.step.story import millis
from app.language import tr
from app.ui.look import theme
from app.ui.look.font_face import Face

HIGH, GAP, LEAST_BAR = 16, 8, 60  # of a line; between columns; of a bar, else the last column is left out
ABOUT = tr("solid: the least that reading its bytes, or computing its operations, takes by the roof of this machine")


class KernelBars:
    """Lays itself out for a width, then draws itself."""

    tiny = Face(11)

    def __init__(self) -> None:
        self._lines: list[KernelLine] = []

    def lay(self, lines: list[KernelLine], left: float, top: float, width: float) -> float:
        """Places everything; returns the height."""
        px, gap = theme.px, theme.px(GAP)
        self._lines, self._left, self._top, self._right = lines, left, top, left + width
        if not lines:
            return 0.0
        self._titles = min(max(self.tiny.width(line.title) for line in lines), 0.4 * width)
        self._times = max(self.tiny.width(millis(line.seconds)) for line in lines)
        bounds = max(self.tiny.width(line.bound) for line in lines)
        room = width - self._titles - self._times - 2 * gap
        self._bounds = bounds if room - bounds - gap >= px(LEAST_BAR) else 0.0
        self._bar = max(1.0, room - (self._bounds + gap if self._bounds else 0.0))
        return len(lines) * float(px(HIGH))

    def draw(self, painter: QPainter) -> None:
        """Draws what was laid out."""
        t, high, gap = theme.current(), theme.px(HIGH), theme.px(GAP)
        longest = max((line.seconds for line in self._lines), default=0.0)
        scale = self._bar / longest if longest else 0.0
        for at, line in enumerate(self._lines):
            top = self._top + at * high
            baseline = top + high / 2 + self.tiny.middle
            self.tiny.say(painter, self._left, baseline, self.tiny.cut(line.title, self._titles), t.text)
            x = self._left + self._titles + gap
            box = QRectF(x, top + high * 0.2, max(1.0, line.seconds * scale), high * 0.6)
            painter.fillRect(box, theme.faded(t.accent if line.least else t.text, 0.25))
            painter.fillRect(QRectF(x, box.top(), min(line.least, line.seconds) * scale, box.height()), t.accent)
            right = self._right - (self._bounds + gap if self._bounds else 0.0)
            self.tiny.say(painter, right, baseline, millis(line.seconds), t.secondary, before=1)
            if self._bounds:
                self.tiny.say(painter, self._right, baseline, line.bound, t.secondary, before=1)

    def tip(self, at: QPointF) -> str:
        """What is under the pointer."""
        row = int((at.y() - self._top) // theme.px(HIGH))
        if not (self._left <= at.x() <= self._right and 0 <= row < len(self._lines)):
            return ""
        line = self._lines[row]
        return f"{line.tip}\n{ABOUT}" if line.least else line.tip
