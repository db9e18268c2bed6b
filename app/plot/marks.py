"""Colours and shapes that tell apart: one a lane, in its heading, its chip, the charts and the table; and one a
quantization, where kin share the colour and the shape, one of them hollow."""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPolygonF

from app.ui.look import theme

VIOLET = 300.0  # degrees in OKLCH
DIAMOND = ((0, -1), (1, 0), (0, 1), (-1, 0))
SCHEMES = {"int8": 0, "int8-plain": 4, "nf4": 1, "nf4-double": 5, "torchao-int8": 2, "awq": 3, "mxfp4": 7}


def lane_color(index: int) -> QColor:
    t = theme.current()
    own = (t.warn, t.good, t.accent, theme.oklch(t.lightness, t.chroma, VIOLET))
    return own[index % len(own)]


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


def scheme_color(name: str) -> QColor:
    """What is not quantized has no colour of its own."""
    return lane_color(SCHEMES[name]) if name in SCHEMES else theme.current().secondary


def draw_scheme(painter: QPainter, name: str, x: float, y: float, size: float) -> None:
    """The mark of a quantization; a cross for what is not quantized."""
    if name in SCHEMES:
        draw_mark(painter, SCHEMES[name], x, y, size)
        return
    painter.setPen(QPen(scheme_color(name), max(1.5, size / 4), Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
    draw_cross(painter, x, y, 0.45 * size)
