"""Patterns that tell kinds apart beside their colours: those of memory, and those of the work in a step."""

from enum import Enum
from functools import lru_cache

import numpy as np
from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QImage, QPaintEngine, QPainter, QPainterPath, QPen, QPixmap, QTransform

from app.plot.inked import inked, mixed, of_vectors
from app.plot.pixels import slanted
from app.ui.look import theme
from app.ui.look.theme import Theme
from engine.trace import Array

PERIOD, STROKE = 6.0, 1.2  # of a hatch, in pixels of the design
QUIET = 0.7  # of a grey hatch
BETWEEN, LINE = 0.34, 0.92  # how strong a hatch's colour is between its lines and in them


class Pattern(Enum):
    """How strong the colour is between the lines, and Qt's own brush, for drawings."""

    SOLID = 1.0, Qt.BrushStyle.SolidPattern
    HATCH = 0.16, Qt.BrushStyle.BDiagPattern
    BACK = 0.16, Qt.BrushStyle.FDiagPattern  # the hatch that falls
    CROSS = 0.18, Qt.BrushStyle.DiagCrossPattern
    DOTS = 0.16, Qt.BrushStyle.Dense6Pattern
    BARS = 0.16, Qt.BrushStyle.VerPattern  # upright
    OUTLINE = 0.0, Qt.BrushStyle.NoBrush

    def ground(self, ink: QColor) -> QColor:
        return mixed(ink, self.value[0])


PATTERNS = {
    "used": Pattern.SOLID,
    "reserved": Pattern.HATCH,
    "internal": Pattern.CROSS,
    "external": Pattern.OUTLINE,
    "states": Pattern.BARS,
    "weights": Pattern.SOLID,
    "activations": Pattern.DOTS,
    "graphs": Pattern.BARS,
    "runtime": Pattern.BACK,
    "other": Pattern.HATCH,
}


def color(kind: str, t: Theme) -> QColor:
    """Colour is for the pool's kinds; the device's other parts are grey."""
    pool = {"used": t.accent, "states": t.accent, "reserved": t.accent, "internal": t.warn, "external": t.bad}
    if kind in pool:
        return pool[kind]
    return t.secondary if PATTERNS[kind] is Pattern.SOLID else mixed(t.secondary, QUIET)


def fill(painter: QPainter, shape: QPainterPath | QRectF, kind: str) -> None:
    """Paints a shape as its kind looks; "free" and what else is unknown is an outline in the theme's quiet edge."""
    t = theme.current()
    if kind not in PATTERNS:
        _stroke(painter, shape, theme.over(t.edge, t.panel))
        return
    pattern, ink = PATTERNS[kind], color(kind, t)
    _paint(painter, shape, QBrush(pattern.ground(ink)))
    if pattern is Pattern.OUTLINE:
        _stroke(painter, shape, ink)
    elif pattern is not Pattern.SOLID:
        _paint(painter, shape, _texture_brush(painter, pattern, ink))


def _paint(painter: QPainter, shape: QPainterPath | QRectF, brush: QBrush) -> None:
    if isinstance(shape, QRectF):
        painter.fillRect(shape, brush)
    else:
        painter.fillPath(shape, brush)


def _stroke(painter: QPainter, shape: QPainterPath | QRectF, ink: QColor) -> None:
    with inked(painter, line=ink):
        if isinstance(shape, QRectF):
            painter.drawRect(shape.adjusted(0.5, 0.5, -0.5, -0.5))
        else:
            painter.drawPath(shape)


def _texture_brush(painter: QPainter, pattern: Pattern, ink: QColor) -> QBrush:
    """The pattern's lines between which nothing is painted, in whole device pixels; in a drawing, Qt's own."""
    if painter.paintEngine().type() == QPaintEngine.Type.SVG:
        return QBrush(ink, pattern.value[1])
    ratio = painter.device().devicePixelRatioF()
    brush = QBrush(_tile(pattern, ink.rgb(), _period(ratio), ratio * theme.zoom()))
    brush.setTransform(QTransform.fromScale(1 / ratio, 1 / ratio))
    return brush


def texture(kind: str, height: int, width: int, ratio: float) -> Array:
    """Pixels 0xffRRGGBB [height, width] of a shape filled as its kind looks, at so many device pixels a pixel."""
    pattern, ink = PATTERNS[kind], color(kind, theme.current())
    ground = pattern.ground(ink)
    if pattern in (Pattern.SOLID, Pattern.OUTLINE):
        return np.full((height, width), ground.rgb(), np.uint32)
    period = _period(ratio)
    cover = _cover(pattern, period, ratio * theme.zoom())[..., None]
    below, above = (np.array([c.red(), c.green(), c.blue()], float) for c in (ground, ink))
    parts = np.rint(below + cover * (above - below)).astype(np.uint32)
    tile = 0xFF000000 | parts[..., 0] << 16 | parts[..., 1] << 8 | parts[..., 2]
    return np.asarray(tile[np.arange(height)[:, None] % period, np.arange(width) % period], np.uint32)


def _period(ratio: float) -> int:
    return max(4, round(PERIOD * theme.zoom() * ratio))


@lru_cache(maxsize=64)
def _tile(pattern: Pattern, rgb: int, period: int, scale: float) -> QImage:
    """One period of a pattern with soft edges."""
    alpha = np.rint(_cover(pattern, period, scale) * 255).astype(np.uint32)
    pixels = np.ascontiguousarray(alpha << 24 | np.uint32(rgb & 0xFFFFFF))
    return QImage(pixels.data, period, period, period * 4, QImage.Format.Format_ARGB32).copy()


def _cover(pattern: Pattern, period: int, scale: float) -> Array:
    """How much of each pixel of one period is ink, 0 to 1."""
    stroke = STROKE * scale
    y, x = np.mgrid[:period, :period]
    rise, fall = (slanted(period, stroke)[phase % period] for phase in (x + y, x - y))
    match pattern:
        case Pattern.HATCH:
            return rise
        case Pattern.BACK:
            return fall
        case Pattern.CROSS:
            return np.maximum(rise, fall)
        case Pattern.BARS:
            return slanted(period, stroke, 1.0)[x]
        case _:
            middle = (period - 1) / 2
            return np.clip(stroke * 0.9 + 0.5 - np.hypot(x - middle, y - middle), 0, 1)


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
            with inked(painter, line=QPen(color, thin)):
                painter.drawRect(inner)
                painter.drawLine(QLineF(inner.topLeft(), inner.bottomRight()))
                painter.drawLine(QLineF(inner.bottomLeft(), inner.topRight()))


def _hatch(painter: QPainter, box: QRectF, color: QColor, rising: bool) -> None:
    """Lines at 45 degrees, bound to the picture and not to the box."""
    period, stroke = theme.px(5), 1.3 * theme.zoom()
    if of_vectors(painter):  # SVG knows neither textures nor clips
        painter.setPen(QPen(color, stroke))
        painter.drawLines(_hatch_lines(box, period, rising))
        return
    sharp = painter.device().devicePixelRatioF()
    brush = QBrush(_hatch_tile(color.rgba(), period, stroke, rising, sharp))
    brush.setTransform(QTransform.fromScale(1 / sharp, 1 / sharp))
    painter.fillRect(box, brush)


def _hatch_lines(box: QRectF, period: int, rising: bool) -> list[QLineF]:
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
def _hatch_tile(rgba: int, period: int, stroke: float, rising: bool, sharp: float) -> QPixmap:
    """One period of a hatch both ways, in device pixels: drawing lines anew costs ten times as much."""
    size = max(2, round(period * sharp))
    tile = QPixmap(size, size)
    tile.fill(Qt.GlobalColor.transparent)
    painter = QPainter(tile)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(QColor.fromRgba(rgba), stroke * sharp))
    painter.drawLines(_hatch_lines(QRectF(-size, -size, 3 * size, 3 * size), size, rising))
    painter.end()
    return tile
