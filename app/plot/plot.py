"""What the charts of the Compare page have in common: a title, ticks at foot and side, lanes' marks, thin lines."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy

from app.plot import axes
from app.plot.colors import lane_color
from app.ui import theme
from app.ui.font_face import Face
from app.ui.painted import Painted
from engine.trace import Array

DIAMOND = ((0, -1), (1, 0), (0, 1), (-1, 0))


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


def draw_shape(painter: QPainter, x: float, y: float, size: float, corners: Sequence[tuple[float, float]]) -> None:
    """A polygon around (x, y), its corners so many sizes from there."""
    painter.drawPolygon(QPolygonF([QPointF(x + size * right, y + size * down) for right, down in corners]))


def draw_cross(painter: QPainter, x: float, y: float, r: float) -> None:
    """Two lines through (x, y) that reach so far to each side, up and down."""
    painter.drawLine(QPointF(x - r, y - r), QPointF(x + r, y + r))
    painter.drawLine(QPointF(x - r, y + r), QPointF(x + r, y - r))


def draw_mark(painter: QPainter, index: int, x: float, y: float, size: float) -> None:
    """A lane's shape in its colour, for those who see no colours: disc, square, triangle, diamond, then hollow."""
    color = lane_color(index)
    hollow = index // 4 % 2 == 1
    painter.setPen(QPen(color, max(1.0, size / 6)) if hollow else Qt.PenStyle.NoPen)
    painter.setBrush(theme.current().panel if hollow else color)
    r = size / 2
    match index % 4:
        case 0:
            painter.drawEllipse(QPointF(x, y), r, r)
        case 1:
            painter.drawRect(QRectF(x - 0.88 * r, y - 0.88 * r, 1.76 * r, 1.76 * r))
        case 2:
            draw_shape(painter, x, y, r, ((0, -1.1), (1.1, 0.9), (-1.1, 0.9)))
        case _:
            draw_shape(painter, x, y, 1.2 * r, DIAMOND)


def draw_line(painter: QPainter, color: QColor, x: Array, y: Array) -> None:
    """A line one device pixel wide, and as dark as one of the design on a finer screen."""
    pen = QPen(color, 1)
    pen.setCosmetic(True)  # wider pens are many times slower: there the line is drawn twice
    painter.setPen(pen)
    polygon = QPolygonF([QPointF(*point) for point in zip(x.tolist(), y.tolist())])
    painter.drawPolyline(polygon)
    ratio = painter.device().devicePixelRatioF()
    if ratio * theme.zoom() >= 1.5:
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
