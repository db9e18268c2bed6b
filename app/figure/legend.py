"""What the fillings of a timeline's slots mean, in one line."""

from collections.abc import Collection

from PySide6.QtCore import QRect, QRectF, QSize
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QSizePolicy

from app.plot.patterns import Mark, paint_mark
from app.ui import theme
from app.ui.font_face import Face
from app.ui.painted import Painted

WORDS = {Mark.HATCH: "prefill", Mark.SOLID: "decode", Mark.GREY: "padding, held", Mark.CROSS: "thrown away"}


class Legend(Painted):
    """Of these fillings, in the same order always."""

    face = Face(11)

    def __init__(self, marks: Collection[Mark]) -> None:
        super().__init__("figure_legend", "Legend")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._marks = [mark for mark in WORDS if mark in marks]

    def sizeHint(self) -> QSize:
        return QSize(theme.px(200), theme.px(16))

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, px, side, x = theme.current(), theme.px, float(theme.px(10)), 0.0
        for mark in self._marks:
            paint_mark(painter, QRectF(x, (self.height() - side) / 2, side, side), t.accent, mark)
            x += side + px(5)
            self.face.say(painter, x, self.face.baseline(0, self.height()), WORDS[mark], t.secondary)
            x += self.face.width(WORDS[mark]) + px(14)
