"""Layouts whose margins and spacing follow the zoom."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QLayout

from app.ui import theme
from app.ui.layouts import NONE, Margins

L = TypeVar("L", bound=QLayout)


class _Zoomed(QObject):
    def __init__(self, layout: QLayout, margins: Margins, spacing: int | None) -> None:
        super().__init__(layout)
        self._layout, self._margins, self._spacing = layout, margins, spacing
        theme.changes.theme_changed.connect(self._apply)
        self._apply()

    def _apply(self) -> None:
        self._layout.setContentsMargins(*map(theme.px, self._margins))
        if self._spacing is not None:
            self._layout.setSpacing(theme.px(self._spacing))


def zoomed(layout: L, margins: Margins = NONE, spacing: int | None = None) -> L:
    """The layout, its margins and spacing so many pixels of the design at whatever zoom."""
    _Zoomed(layout, margins, spacing)
    return layout
