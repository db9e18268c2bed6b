"""The small shapes of a timeline's marks, each drawn once and then copied, and those that have room."""

import math

import numpy as np
from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPixmap

from app.inside.timeline.marks import Mark
from app.plot.marks import DIAMOND, draw_cross, draw_shape
from app.ui.look import theme
from engine.trace import Array

SIZE = 6  # pixels of the design, without the halo
HALO = 1.5
MOST = 500  # marks drawn at once
APART = 9  # marks of one slot that are nearer to each other are drawn as one


class Glyphs:
    """Make a new one when the theme or the zoom changes."""

    def __init__(self, ratio: float) -> None:
        self.size = theme.px(SIZE) + 2 * HALO * theme.zoom()
        self._pixmaps: dict[Mark, QPixmap] = {}
        for mark in Mark:
            side = math.ceil(self.size * ratio)
            pixmap = QPixmap(side, side)
            pixmap.setDevicePixelRatio(ratio)
            pixmap.fill(Qt.GlobalColor.transparent)
            painter = QPainter(pixmap)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            middle = side / ratio / 2
            draw_glyph(painter, mark, middle, middle, theme.px(SIZE))
            painter.end()
            self._pixmaps[mark] = pixmap

    def draw(self, painter: QPainter, mark: Mark, x: float, y: float) -> None:
        """Draws the mark with its middle there."""
        painter.drawPixmap(QPointF(x - self.size / 2, y - self.size / 2), self._pixmaps[mark])


def mark_color(mark: Mark) -> QColor:
    t = theme.current()
    match mark:
        case Mark.PREEMPTED | Mark.SWAPPED_OUT:
            return t.warn
        case Mark.BUDGET_SET:
            return t.accent
        case Mark.ERROR:
            return t.bad
        case _:
            return t.text


def draw_glyph(painter: QPainter, mark: Mark, x: float, y: float, size: float, color: QColor | None = None) -> None:
    """The mark's shape in its colour, on a halo of the panel's that parts it from the bar below."""
    ground, ink = theme.current().panel, color or mark_color(mark)
    for fill, halo in ((ground, 2 * HALO * theme.zoom()), (ink, 0.0)):
        _shape(painter, mark, x, y, size / 2, fill, halo)


def _shape(painter: QPainter, mark: Mark, x: float, y: float, r: float, color: QColor, halo: float) -> None:
    stroke = max(1.4, 0.42 * r)
    pen = QPen(color, halo, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap, Qt.PenJoinStyle.RoundJoin)
    painter.setPen(pen if halo else Qt.PenStyle.NoPen)
    painter.setBrush(color)
    line = QPen(color, stroke + halo, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap)
    match mark:
        case Mark.SUBMITTED:
            draw_shape(painter, x, y, r, ((-1, -1), (1, -1), (0, 0.7)))
        case Mark.FIRST_TOKEN:
            painter.drawEllipse(QPointF(x, y), 0.8 * r, 0.8 * r)
        case Mark.PREFIX_HIT:
            draw_shape(painter, x, y, r, DIAMOND)
        case Mark.FROM_HOST:  # a prefix hit, from below
            draw_shape(painter, x, y - 0.35 * r, 0.65 * r, DIAMOND)
            draw_shape(painter, x, y + 0.75 * r, r, ((-0.75, -0.2), (0.75, -0.2), (0.75, 0.25), (-0.75, 0.25)))
        case Mark.FINISHED:
            painter.drawRect(QRectF(x - 0.7 * r, y - 0.7 * r, 1.4 * r, 1.4 * r))
        case Mark.PREEMPTED:
            painter.setPen(line)
            for side in (-0.5 * r, 0.5 * r):
                painter.drawLine(QLineF(x + side, y - 0.75 * r, x + side, y + 0.75 * r))
        case Mark.SWAPPED_OUT:
            draw_shape(painter, x, y, r, ((-1, 0), (0.8, -0.9), (0.8, 0.9)))
        case Mark.SWAPPED_IN:
            draw_shape(painter, x, y, r, ((1, 0), (-0.8, -0.9), (-0.8, 0.9)))
        case Mark.BUDGET_SET:
            draw_shape(painter, x, y, r, ((-0.3, -1), (0.3, -1), (0.3, 1), (-0.3, 1)))
        case Mark.CANCELLED:
            painter.setPen(line)
            draw_cross(painter, x, y, 0.7 * r)
        case Mark.ERROR:
            draw_shape(painter, x, y, r, ((0, -1), (1, 0.8), (-1, 0.8)))


def with_room(kind: Array, x: Array, row: Array, apart: float) -> Array:
    """Which marks are drawn: of those on one row within `apart` pixels the most important, and at most so many."""
    order = np.lexsort((x, -kind.astype(np.int64)))
    place = row[order].astype(np.int64) << 32 | np.floor(x[order] / apart).astype(np.int64)
    _, first = np.unique(place, return_index=True)
    return np.asarray(order[np.sort(first)][:MOST])
