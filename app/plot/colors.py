"""One colour a lane: in its heading, its chip, the charts and the table."""

from __future__ import annotations

from PySide6.QtGui import QColor

from app.ui import theme

VIOLET = 300.0  # degrees in OKLCH


def lane_color(index: int) -> QColor:
    t = theme.current()
    own = (t.warn, t.good, t.accent, theme.oklch(t.lightness, t.chroma, VIOLET))
    return own[index % len(own)]
