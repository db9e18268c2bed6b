"""The brackets over a timeline's stalls, and their lengths in words."""

import numpy as np
from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter

from app.inside.timeline.marks import Stalls
from app.inside.timeline.picture.shading import DIMMED
from app.inside.timeline.words import length_words
from app.plot.inked import say_on_plate
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from engine.trace import Array

MOST = 1500  # drawn at once, the longest


def draw_bracket(painter: QPainter, box: QRectF) -> None:
    """The sign of a stall: open at the top."""
    warn, thick = theme.current().warn, max(1.0, round(1.5 * theme.zoom()))
    painter.fillRect(QRectF(box.left(), box.bottom() - thick, box.width(), thick), warn)
    for x in (box.left(), box.right() - thick):
        painter.fillRect(QRectF(x, box.top(), thick, box.height()), warn)


def draw_stalls(
    painter: QPainter,
    face: FontFace,
    stalls: Stalls,
    left: Array,
    right: Array,
    y: Array,
    bar: float,
    selected: int | None,
    cursor: float,
) -> None:
    """A bracket over each stall; `y` are the middles of bars `bar` high. Its length is said where there is room and the
    cursor has passed it: what comes later is pale, and could not be read."""
    warn = theme.current().warn
    thick = max(1.0, round(1.5 * theme.zoom()))
    labelled = bar >= face.height - theme.px(4)
    for i in np.argsort(stalls.begin - stalls.end)[:MOST].tolist():
        begin, end, top = float(left[i]), float(right[i]), float(y[i]) - bar / 2
        painter.setOpacity(1.0 if selected in (None, int(stalls.request[i])) else DIMMED)
        if end - begin < 4 or bar < 4:
            painter.fillRect(QRectF(round(end) - thick, top, thick, max(1.0, bar)), warn)
            continue
        draw_bracket(painter, QRectF(begin, top, end - begin, bar))
        words = length_words(float(stalls.end[i] - stalls.begin[i]))
        wide = face.width(words)
        if labelled and end <= cursor and end - begin >= wide + theme.px(14):
            say_on_plate(painter, face, (begin + end - wide) / 2, top + (bar + face.cap) / 2, words, warn)
    painter.setOpacity(1.0)
