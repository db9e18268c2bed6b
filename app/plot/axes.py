"""The words along an axis: below a plot's foot, and left of its side."""

import math
from collections.abc import Iterable

from PySide6.QtGui import QPainter

from app.ui.look import theme
from app.ui.look.font_face import FontFace

Ticks = Iterable[tuple[float, str]]  # where each is, in pixels, and its words


def foot(
    painter: QPainter,
    face: FontFace,
    ticks: Ticks,
    baseline: float,
    left: float,
    right: float,
    *,
    apart: float = -math.inf,
    moved: bool = True,
) -> None:
    """Words in the middle of their places, from left to right, at least `apart` from each other or left out. What
    would end beyond `right` is moved there, or left out."""
    last = -math.inf
    for x, word in ticks:
        width = face.width(word)
        x = max(left, x - width / 2)
        if moved:
            x = min(x, right - width)
        if x >= last + apart and (moved or x + width <= right):
            face.say(painter, x, baseline, word, theme.current().secondary)
            last = x + width


def side(
    painter: QPainter, face: FontFace, ticks: Ticks, right: float, lowest: float = math.inf, apart: float = -math.inf
) -> None:
    """Words that end at `right`, in the middle of their heights, from the foot up; none lies below `lowest`, and what
    is not more than `apart` above the last is left out."""
    last = math.inf
    for y, word in ticks:
        if y < last - apart:
            face.say(painter, right, min(y + face.cap / 2, lowest), word, theme.current().secondary, before=1)
            last = y
