"""The patterns that tell kinds of work apart in a step, beside their colours: solid, hatched, grey, crossed."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPaintEngine, QPainter, QPen, QPixmap, QTransform

from app import theme

BETWEEN, LINE = 0.34, 0.92  # how strong a hatch's colour is between its lines and in them


class Mark(Enum):
    """SOLID: decode. HATCH: prefill. GREY: padding, and rows held until the longest ends. CROSS: thrown away."""

    SOLID = 0
    HATCH = 1
    GREY = 2
    CROSS = 3


def paint_mark(painter: QPainter, box: QRectF, color: QColor, mark: Mark) -> None:
    """Fills a box with a colour in this pattern; lines run on through boxes side by side."""
    if box.width() <= 0 or box.height() <= 0:
        return
    match mark:
        case Mark.SOLID:
            painter.fillRect(box, color)
        case Mark.HATCH:
            painter.fillRect(box, theme.faded(color, BETWEEN))
            _hatch(painter, box, theme.faded(color, LINE), rising=True)
        case Mark.GREY:
            grey = theme.current().secondary
            painter.fillRect(box, theme.faded(grey, 0.08))
            _hatch(painter, box, theme.faded(grey, 0.5), rising=False)
        case Mark.CROSS:
            thin = max(1.0, theme.zoom())
            inner = box.adjusted(thin / 2, thin / 2, -thin / 2, -thin / 2)
            painter.save()
            painter.setPen(QPen(color, thin))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(inner)
            painter.drawLine(QLineF(inner.topLeft(), inner.bottomRight()))
            painter.drawLine(QLineF(inner.bottomLeft(), inner.topRight()))
            painter.restore()


def _hatch(painter: QPainter, box: QRectF, color: QColor, rising: bool) -> None:
    """Lines at 45 degrees, bound to the picture and not to the box."""
    period, stroke = theme.px(5), 1.3 * theme.zoom()
    engine = painter.paintEngine()
    if engine is not None and engine.type() is QPaintEngine.Type.SVG:  # which knows neither textures nor clips
        painter.setPen(QPen(color, stroke))
        painter.drawLines(_lines(box, period, rising))
        return
    sharp = painter.device().devicePixelRatioF()
    brush = QBrush(_tile(color.rgba(), period, stroke, rising, sharp))
    brush.setTransform(QTransform.fromScale(1 / sharp, 1 / sharp))
    painter.fillRect(box, brush)


def _lines(box: QRectF, period: int, rising: bool) -> list[QLineF]:
    """The hatch's lines within a box."""
    high, left, right = box.height(), box.left(), box.right()
    slope = box.top() if rising else -box.bottom()
    x = left - high - (left - high + slope) % period
    lines = []
    while x < right:
        begin, end = max(x, left), min(x + high, right)
        if begin < end:
            over, under = (end, begin) if rising else (begin, end)
            top = box.top() + (x + high - over if rising else over - x)
            bottom = box.top() + (x + high - under if rising else under - x)
            lines.append(QLineF(over, top, under, bottom))
        x += period
    return lines


@lru_cache(maxsize=1024)
def _tile(rgba: int, period: int, stroke: float, rising: bool, sharp: float) -> QPixmap:
    """One period of a hatch both ways, in device pixels: drawing lines anew costs ten times as much."""
    size = max(2, round(period * sharp))
    tile = QPixmap(size, size)
    tile.fill(Qt.GlobalColor.transparent)
    painter = QPainter(tile)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(QColor.fromRgba(rgba), stroke * sharp))
    painter.drawLines(_lines(QRectF(-size, -size, 3 * size, 3 * size), size, rising))
    painter.end()
    return tile
