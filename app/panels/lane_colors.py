"""One colour a lane: in its heading, its chip, the charts and the table."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme

VIOLET = 300.0  # degrees in OKLCH


def lane_color(index: int) -> QColor:
    t = theme.current()
    own = (t.warn, t.good, t.accent, theme.oklch(t.lightness, t.chroma, VIOLET))
    return own[index % len(own)]


class LaneDot(QWidget):
    """A lane's colour as a dot."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    def sizeHint(self) -> QSize:
        return QSize(theme.px(10), theme.px(10))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(lane_color(self.index))
        radius = theme.px(8) / 2
        painter.drawEllipse(QPointF(self.width() / 2, self.height() / 2), radius, radius)
        painter.end()
