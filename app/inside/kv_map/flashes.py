"""What just happened to blocks, drawn over the map for a moment: a ring for a hit, a diamond for a copy, a cross for an
eviction, an arrow for what came back."""

from collections.abc import Callable
from time import perf_counter

import numpy as np
from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter, QPen

from app.inside.kv_map.state import KvState, Mark
from app.plot.inked import inked
from app.plot.marks import DIAMOND, draw_cross, draw_shape
from app.ui.look import theme
from app.ui.look.motion import moving

SECONDS = 0.3
LATE = 256  # steps: after a longer jump nothing is new
MOST = 600  # marks at once: more would be a blur, and slow


class Marks:
    """Blocks with a mark, and when it was put there (`perf_counter`). It fades, or where nothing is to move stands as
    long and is gone."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, int, float]] = []  # block, mark, when

    def note(self, state: KvState, before: int) -> None:
        """Marks what happened after the step of place `before`, up to the state's."""
        if 0 < state.at - before <= LATE:
            now, blocks = perf_counter(), np.flatnonzero(state.event_at > before)[-MOST:]
            self._marks += [(block, mark, now) for block, mark in zip(blocks.tolist(), state.event[blocks].tolist())]

    def __bool__(self) -> bool:
        fresh = perf_counter() - SECONDS
        self._marks = [mark for mark in self._marks[-MOST:] if mark[2] > fresh]
        return len(self._marks) > 0

    def paint(self, painter: QPainter, box_of: Callable[[int], QRectF]) -> None:
        """Draws them over their blocks' boxes, the older the fainter."""
        now, fades = perf_counter(), moving()
        for block, kind, begun in self._marks:
            strength = max(0.0, 1 - (now - begun) / SECONDS) if fades else 1.0
            draw_mark(painter, Mark(kind), box_of(block), strength)


def draw_mark(painter: QPainter, mark: Mark, box: QRectF, strength: float = 1.0) -> None:
    """One mark over a cell, never smaller than can be seen."""
    t = theme.current()
    color = theme.faded({Mark.COPIED: t.accent, Mark.EVICTED: t.bad, Mark.FOUND: t.good}.get(mark, t.text), strength)
    c, r = box.center(), max(theme.px(4), box.width() / 2)
    with inked(painter, line=QPen(color, max(1.5, 1.5 * theme.zoom()))):
        match mark:
            case Mark.COPIED:
                draw_shape(painter, c.x(), c.y(), 1.2 * r, DIAMOND)
            case Mark.EVICTED:
                draw_cross(painter, c.x(), c.y(), 0.8 * r)
            case Mark.FOUND:
                draw_shape(painter, c.x(), c.y(), 1.1 * r, ((0, -1), (1, 0.8), (-1, 0.8)))
            case _:
                painter.drawRect(QRectF(c.x() - r, c.y() - r, 2 * r, 2 * r))
