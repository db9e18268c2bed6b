"""What just happened to blocks, drawn over the map for a moment: a ring for a hit, a diamond for a copy, a cross for an
eviction."""

from __future__ import annotations

from time import perf_counter

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen, QPolygonF

from app.inside.kv_map.pixels import Grid
from app.inside.kv_map.state import KvState, Mark
from app.ui import theme
from engine.trace import Array

SECONDS = 0.3
LATE = 256  # steps: after a longer jump nothing is new
MOST = 600  # marks at once: more would be a blur, and slow


class Marks:
    """Blocks with a mark, and when it was put there (`perf_counter`)."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._blocks: Array = np.zeros(0, np.int64)
        self._kinds: Array = np.zeros(0, np.uint8)
        self._begun: Array = np.zeros(0)

    def note(self, state: KvState, before: int) -> None:
        """Marks what happened after the step of place `before`, up to the state's."""
        self._forget()
        if not 0 < state.at - before <= LATE:
            return
        blocks = np.flatnonzero(state.event_at > before)[-MOST:]
        if len(blocks):
            self._blocks = np.append(self._blocks, blocks)[-MOST:]
            self._kinds = np.append(self._kinds, state.event[blocks])[-MOST:]
            self._begun = np.append(self._begun, np.full(len(blocks), perf_counter()))[-MOST:]

    def __bool__(self) -> bool:
        self._forget()
        return len(self._blocks) > 0

    def _forget(self) -> None:
        fresh = self._begun > perf_counter() - SECONDS
        if not fresh.all():
            self._blocks, self._kinds, self._begun = self._blocks[fresh], self._kinds[fresh], self._begun[fresh]

    def paint(self, painter: QPainter, grid: Grid, ratio: float) -> None:
        """Draws them, the older the fainter."""
        now, (width, height) = perf_counter(), grid.size
        for block, kind, begun in zip(self._blocks.tolist(), self._kinds.tolist(), self._begun.tolist()):
            x, y = grid.corner(block)
            box = QRectF(x / ratio, y / ratio, width / ratio, height / ratio)
            draw_mark(painter, Mark(kind), box, max(0.0, 1 - (now - begun) / SECONDS))


def draw_mark(painter: QPainter, mark: Mark, box: QRectF, strength: float = 1.0) -> None:
    """One mark over a cell, never smaller than can be seen."""
    t = theme.current()
    color = theme.faded({Mark.COPIED: t.accent, Mark.EVICTED: t.bad}.get(mark, t.text), strength)
    painter.setPen(QPen(color, max(1.5, 1.5 * theme.zoom())))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    c, r = box.center(), max(theme.px(4), box.width() / 2)
    match mark:
        case Mark.COPIED:
            r *= 1.2
            points = (QPointF(0, -r), QPointF(r, 0), QPointF(0, r), QPointF(-r, 0))
            painter.drawPolygon(QPolygonF([c + point for point in points]))
        case Mark.EVICTED:
            r *= 0.8
            painter.drawLine(c + QPointF(-r, -r), c + QPointF(r, r))
            painter.drawLine(c + QPointF(-r, r), c + QPointF(r, -r))
        case _:
            painter.drawRect(QRectF(c.x() - r, c.y() - r, 2 * r, 2 * r))
