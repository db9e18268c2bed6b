"""Fields that are as strong as what they stand for: words on the faintest and the strongest can be read, from afar
too."""

from functools import lru_cache

import numpy as np
from PySide6.QtGui import QColor, QImage

from app.ui.look import theme
from engine.trace import Array

FAINTEST, STRONGEST = 0.10, 0.42  # of the accent
SHADES = 256


def shade(share: float, strongest: float = STRONGEST) -> QColor:
    """Of a field with this share of the highest value; what has nothing has the colour of an empty one."""
    t = theme.current()
    if share <= 0:
        return t.field
    return theme.over(theme.faded(t.accent, FAINTEST + (strongest - FAINTEST) * share), t.panel)


def shaded(shares: Array, strongest: float = STRONGEST) -> QImage:
    """A pixel each: `shares` `[lines, fields]` of the highest value, in [0, 1]."""
    t = theme.current()
    colors = _shades(strongest, t.field.name(), t.accent.name(), t.panel.name())
    pixels = np.ascontiguousarray(colors[np.ceil(shares * (SHADES - 1)).astype(np.intp)])
    lines, fields = pixels.shape
    return QImage(pixels.data, fields, lines, 4 * fields, QImage.Format.Format_RGB32).copy()


@lru_cache(maxsize=16)
def _shades(strongest: float, *theme_in_force: str) -> Array:
    return np.array([shade(i / (SHADES - 1), strongest).rgb() for i in range(SHADES)], np.uint32)
