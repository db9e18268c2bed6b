"""What the charts of the Compare page have in common: a title, ticks at foot and side, lanes' marks, thin lines."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy

from app.plot.colors import lane_color
from app.ui import theme
from app.ui.font_face import Face
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
        painter.setFont(self.head.font)
        painter.setPen(theme.current().secondary)
        self.head.draw(painter, 0, math.ceil(self.head.ascent), self.head.cut(self.title.upper(), self.width()))
        top = math.ceil(self.head.height) + theme.px(8)
        foot = self.height() - theme.px(8) - math.ceil(self.tiny.ascent)
        self.draw(painter, QRectF(0, top, self.width(), max(1, foot - top)))

    def foot(self, painter: QPainter, left: float, right: float, y: float, ticks: Sequence[tuple[float, str]]) -> None:
        """The rule along the foot, and words below it, each at its share of the width."""
        painter.fillRect(QRectF(left, y, right - left, 1), theme.current().hairline)
        painter.setFont(self.tiny.font)
        painter.setPen(theme.current().secondary)
        baseline = y + theme.px(6) + self.tiny.ascent
        for share, word in ticks:
            width = self.tiny.width(word)
            x = min(max(left + share * (right - left) - width / 2, left), right - width)
            self.tiny.draw(painter, x, baseline, word)

    def side(self, painter: QPainter, plot: QRectF, words: Sequence[str]) -> None:
        """The vertical axis' words left of the plot, evenly from its foot to its top."""
        painter.setFont(self.tiny.font)
        painter.setPen(theme.current().secondary)
        cap = self.tiny.metrics.capHeight()
        for i, word in enumerate(words):
            y = plot.bottom() - i / (len(words) - 1) * plot.height() + cap / 2
            self.tiny.draw(painter, plot.left() - theme.px(6) - self.tiny.width(word), min(y, plot.bottom()), word)

    def tip(self, at: QPointF) -> str:
        return self.tooltip()


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
            painter.drawPolygon(
                QPolygonF(
                    [QPointF(x, y - 1.1 * r), QPointF(x + 1.1 * r, y + 0.9 * r), QPointF(x - 1.1 * r, y + 0.9 * r)]
                )
            )
        case _:
            painter.drawPolygon(
                QPolygonF(
                    [QPointF(x, y - 1.2 * r), QPointF(x + 1.2 * r, y), QPointF(x, y + 1.2 * r), QPointF(x - 1.2 * r, y)]
                )
            )


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
