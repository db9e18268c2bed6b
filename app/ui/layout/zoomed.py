"""Margins, spacing and sizes in pixels of the design, which follow the zoom."""

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QLayout, QWidget

from app.ui.layout.boxes import NONE, Margins
from app.ui.look import theme

L = TypeVar("L", bound=QLayout)
W = TypeVar("W", bound=QWidget)


class _Zoomed(QObject):
    """Applies lengths now and at every zoom, for as long as their owner is there."""

    def __init__(self, owner: QObject, apply: Callable[[], object]) -> None:
        super().__init__(owner)
        self._apply = apply
        theme.changes.theme_changed.connect(self._on_theme)
        apply()

    def _on_theme(self) -> None:
        self._apply()


def zoomed(layout: L, margins: Margins = NONE, spacing: int | None = None) -> L:
    """The layout, its margins and spacing so many pixels of the design at whatever zoom."""

    def apply() -> None:
        layout.setContentsMargins(*map(theme.px, margins))
        if spacing is not None:
            layout.setSpacing(theme.px(spacing))

    _Zoomed(layout, apply)
    return layout


def sized(widget: W, *, width: int = 0, least_width: int = 0, least_height: int = 0, most_height: int = 0) -> W:
    """The widget, so many pixels of the design large at whatever zoom; 0 leaves it to its contents."""

    def apply() -> None:
        if width:
            widget.setFixedWidth(theme.px(width))
        if least_width:
            widget.setMinimumWidth(theme.px(least_width))
        if least_height:
            widget.setMinimumHeight(theme.px(least_height))
        if most_height:
            widget.setMaximumHeight(theme.px(most_height))

    _Zoomed(widget, apply)
    return widget
