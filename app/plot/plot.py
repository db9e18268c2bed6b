"""What the charts of the Compare page have in common: a title, ticks at foot and side, lanes' marks, thin lines."""

import math
from abc import abstractmethod
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRect, QRectF
from PySide6.QtGui import QColor, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy

from app.plot import axes
from app.plot.inked import of_vectors
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted
from engine.trace import Array


class Plot(Painted):
    """A title with room for a drawing below it."""

    title = ""
    hint, least = (300, 260), (200, 130)
    head, small, tiny = Face(11, 600, spaced=True), Face(12), Face(11)

    def __init__(self, name: str) -> None:
        super().__init__(name, self.title)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    @abstractmethod
    def draw(self, painter: QPainter, area: QRectF) -> None:
        """Draws into the area; below it is room for the ticks' words."""

    @abstractmethod
    def tooltip(self) -> str:
        """What is drawn, and its figures."""

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        title = self.head.cut(self.title.upper(), self.width())
        self.head.say(painter, 0, math.ceil(self.head.ascent), title, theme.current().secondary)
        top = math.ceil(self.head.height) + theme.px(8)
        foot = self.height() - theme.px(8) - math.ceil(self.tiny.ascent)
        self.draw(painter, QRectF(0, top, self.width(), max(1, foot - top)))

    def foot(self, painter: QPainter, left: float, right: float, y: float, ticks: Sequence[tuple[float, str]]) -> None:
        """The rule along the foot, and words below it, each at its share of the width."""
        painter.fillRect(QRectF(left, y, right - left, 1), theme.current().hairline)
        places = ((left + share * (right - left), word) for share, word in ticks)
        axes.foot(painter, self.tiny, places, y + theme.px(6) + self.tiny.ascent, left, right)

    def side(self, painter: QPainter, plot: QRectF, words: Sequence[str]) -> None:
        """The vertical axis' words left of the plot, evenly from its foot to its top."""
        places = ((plot.bottom() - i / (len(words) - 1) * plot.height(), word) for i, word in enumerate(words))
        axes.side(painter, self.tiny, places, plot.left() - theme.px(6), plot.bottom())

    def tip(self, at: QPointF) -> str:
        return self.tooltip()


def draw_line(painter: QPainter, color: QColor, x: Array, y: Array) -> None:
    """A line one device pixel wide, and as dark as one of the design on a finer screen."""
    pen = QPen(color, 1)
    pen.setCosmetic(True)  # wider pens are many times slower: there the line is drawn twice
    painter.setPen(pen)
    polygon = QPolygonF([QPointF(*point) for point in zip(x.tolist(), y.tolist())])
    painter.drawPolyline(polygon)
    ratio = painter.device().devicePixelRatioF()
    if ratio * theme.zoom() >= 1.5 and not of_vectors(painter):
        painter.drawPolyline(polygon.translated(0.7 / ratio, 0.7 / ratio))


def apart(wanted: Sequence[float], least: float, top: float, bottom: float) -> list[float]:
    """Places as near as can be to those wanted, at least `least` from each other, between `top` and `bottom`."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    result = [0.0] * len(wanted)
    y = top - least
    for i in order:
        result[i] = y = max(wanted[i], y + least)
    y = bottom + least
    for i in reversed(order):
        result[i] = y = min(result[i], y - least)
    return result
