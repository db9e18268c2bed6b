"""A strip as a picture in the theme's colours."""

from collections import OrderedDict

import numpy as np
from PySide6.QtGui import QColor, QImage

from app.ui.look import theme
from app.ui.look.theme import Theme
from engine.library import HELD, IDLE, Strip

KEPT = 512
PREFILL = 0.55  # how strong a request's colour is while its prompt is computed


def picture_of(strip: Strip, t: Theme) -> QImage:
    """A pixel a cell: each request in its colour, paler while its prompt is computed, held rows grey."""
    codes, places = np.unique(strip.cells, return_inverse=True)
    colors = np.array([_color(int(code), t).rgba() for code in codes], np.uint32)
    pixels = np.ascontiguousarray(colors[places.reshape(strip.cells.shape)])
    high, wide = pixels.shape
    return QImage(pixels.tobytes(), wide, high, 4 * wide, QImage.Format.Format_ARGB32).copy()


def _color(code: int, t: Theme) -> QColor:
    if code == IDLE:
        return theme.over(t.hairline, t.panel)
    if code == HELD:
        return theme.over(theme.faded(t.secondary, 0.5), t.panel)
    color = theme.request_color(code // 2, t)
    return theme.over(theme.faded(color, PREFILL), t.panel) if code % 2 else color


class Thumbnails:
    """Pictures of the strips that were painted last."""

    def __init__(self) -> None:
        self._pictures: OrderedDict[tuple[str, str], QImage | None] = OrderedDict()

    def of(self, strip: str) -> QImage | None:
        """None for what is no strip."""
        t = theme.current()
        key = t.name, strip
        if key not in self._pictures:
            try:
                self._pictures[key] = picture_of(Strip.parse(strip), t)
            except ValueError:
                self._pictures[key] = None
            while len(self._pictures) > KEPT:
                self._pictures.popitem(last=False)
        self._pictures.move_to_end(key)
        return self._pictures[key]
