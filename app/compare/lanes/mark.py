"""A lane's colour and shape, as the charts draw it, to stand beside its name."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.plot.plot import draw_mark
from app.ui import theme


class LaneMark(QWidget):
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
        draw_mark(painter, self.index, self.width() / 2, self.height() / 2, theme.px(8))
        painter.end()
