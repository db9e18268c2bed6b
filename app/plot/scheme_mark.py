"""One colour and one shape a quantization: kin share the colour and the shape, one of them hollow."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPainter, QPen

from app.plot.colors import lane_color
from app.plot.plot import draw_cross, draw_mark
from app.ui import theme

PLACES = {"int8": 0, "int8-plain": 4, "nf4": 1, "nf4-double": 5, "torchao-int8": 2, "awq": 3}


def scheme_color(name: str) -> QColor:
    """What is not quantized has no colour of its own."""
    return lane_color(PLACES[name]) if name in PLACES else theme.current().secondary


def draw_scheme(painter: QPainter, name: str, x: float, y: float, size: float) -> None:
    """The mark of a quantization; a cross for what is not quantized."""
    if name in PLACES:
        draw_mark(painter, PLACES[name], x, y, size)
        return
    painter.setPen(QPen(scheme_color(name), max(1.5, size / 4), Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
    draw_cross(painter, x, y, 0.45 * size)
