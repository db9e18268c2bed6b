"""A lane's colour and shape, as the charts draw it, to stand beside its name."""

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QPainter

from app.plot.marks import draw_mark
from app.ui.look import theme
from app.ui.painted import Painted


class LaneMark(Painted):
    hint = least = (10, 10)

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        draw_mark(painter, self.index, self.width() / 2, self.height() / 2, theme.px(8))
