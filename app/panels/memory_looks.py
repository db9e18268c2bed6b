"""How each kind of memory looks, told apart by pattern as well as colour: solid, light hatch, cross hatch, outline."""

from __future__ import annotations

from enum import Enum, auto
from functools import lru_cache

import numpy as np
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QImage, QPaintEngine, QPainter, QPainterPath, QPen, QTransform

from app import theme
from app.theme import Theme

PERIOD, STROKE = 6.0, 1.2  # of a hatch, in pixels of the design
QUIET = 0.7  # of a grey hatch


class Pattern(Enum):
    SOLID = auto()
    HATCH = auto()
    BACK = auto()  # the hatch that falls
    CROSS = auto()
    DOTS = auto()
    OUTLINE = auto()


PATTERNS = {
    "used": Pattern.SOLID, "reserved": Pattern.HATCH, "internal": Pattern.CROSS, "external": Pattern.OUTLINE,
    "weights": Pattern.SOLID, "activations": Pattern.DOTS, "runtime": Pattern.BACK, "other": Pattern.HATCH,
}  # fmt: skip


def color(kind: str, t: Theme) -> QColor:
    """Colour is for the pool's kinds; the device's other parts are grey."""
    pool = {"used": t.accent, "reserved": t.accent, "internal": t.warn, "external": t.bad}
    if kind in pool:
        return pool[kind]
    return t.secondary if PATTERNS[kind] is Pattern.SOLID else theme.over(_faint(t.secondary, QUIET), t.panel)


def fill(painter: QPainter, shape: QPainterPath | QRectF, kind: str) -> None:
    """Paints a shape as its kind looks; "free" and what else is unknown is an outline in the theme's quiet edge."""
    t = theme.current()
    if kind not in PATTERNS:
        _stroke(painter, shape, theme.over(t.edge, t.panel))
        return
    pattern, ink = PATTERNS[kind], color(kind, t)
    _paint(painter, shape, QBrush(theme.over(_faint(ink, _GROUND[pattern]), t.panel)))
    if pattern is Pattern.OUTLINE:
        _stroke(painter, shape, ink)
    elif pattern is not Pattern.SOLID:
        _paint(painter, shape, _lines(painter, pattern, ink))


_GROUND = {
    Pattern.SOLID: 1.0, Pattern.HATCH: 0.16, Pattern.BACK: 0.16, Pattern.CROSS: 0.18, Pattern.DOTS: 0.16,
    Pattern.OUTLINE: 0.0,
}  # fmt: skip
_QT_STYLES = {
    Pattern.HATCH: Qt.BrushStyle.BDiagPattern, Pattern.BACK: Qt.BrushStyle.FDiagPattern,
    Pattern.CROSS: Qt.BrushStyle.DiagCrossPattern, Pattern.DOTS: Qt.BrushStyle.Dense6Pattern,
}  # fmt: skip


def _faint(ink: QColor, alpha: float) -> QColor:
    result = QColor(ink)
    result.setAlphaF(alpha)
    return result


def _paint(painter: QPainter, shape: QPainterPath | QRectF, brush: QBrush) -> None:
    if isinstance(shape, QRectF):
        painter.fillRect(shape, brush)
    else:
        painter.fillPath(shape, brush)


def _stroke(painter: QPainter, shape: QPainterPath | QRectF, ink: QColor) -> None:
    painter.save()
    painter.setPen(QPen(ink, 1))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    if isinstance(shape, QRectF):
        painter.drawRect(shape.adjusted(0.5, 0.5, -0.5, -0.5))
    else:
        painter.drawPath(shape)
    painter.restore()


def _lines(painter: QPainter, pattern: Pattern, ink: QColor) -> QBrush:
    """The pattern's lines between which nothing is painted, in whole device pixels; in a drawing, Qt's own."""
    if painter.paintEngine().type() == QPaintEngine.Type.SVG:
        return QBrush(ink, _QT_STYLES[pattern])
    ratio = painter.device().devicePixelRatioF()
    brush = QBrush(_tile(pattern, ink.rgb(), max(4, round(PERIOD * theme.zoom() * ratio)), ratio * theme.zoom()))
    brush.setTransform(QTransform.fromScale(1 / ratio, 1 / ratio))
    return brush


@lru_cache(maxsize=64)
def _tile(pattern: Pattern, rgb: int, period: int, scale: float) -> QImage:
    """One period of a pattern with soft edges."""
    stroke = STROKE * scale
    y, x = np.mgrid[:period, :period]

    def line(phase: np.ndarray) -> np.ndarray:
        phase = phase % period
        distance = np.minimum(phase, period - phase) * np.sqrt(0.5)
        return np.clip(stroke / 2 + 0.5 - distance, 0, 1)

    match pattern:
        case Pattern.HATCH:
            cover = line(x + y)
        case Pattern.BACK:
            cover = line(x - y)
        case Pattern.CROSS:
            cover = np.maximum(line(x + y), line(x - y))
        case _:
            middle = (period - 1) / 2
            cover = np.clip(stroke * 0.9 + 0.5 - np.hypot(x - middle, y - middle), 0, 1)
    alpha = np.rint(cover * 255).astype(np.uint32)
    pixels = np.ascontiguousarray(alpha << 24 | np.uint32(rgb & 0xFFFFFF))
    return QImage(pixels.data, period, period, period * 4, QImage.Format.Format_ARGB32).copy()
