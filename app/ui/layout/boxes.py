"""Rows and columns, each said in one expression."""

from typing import TypeVar

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QLayout, QScrollArea, QVBoxLayout, QWidget

Placed = QWidget | QLayout | int | None
Item = Placed | tuple[QWidget | QLayout, int] | tuple[QWidget, int, Qt.AlignmentFlag]
Margins = tuple[int, int, int, int]
NONE = (0, 0, 0, 0)
L = TypeVar("L", bound=QBoxLayout)


def row(*items: Item, margins: Margins | None = NONE, spacing: int | None = None) -> QHBoxLayout:
    """From left to right. None is what room is left over, a number a gap of so many pixels; a pair gives its share of
    what is left over too. Margins of None are the style's own."""
    return fill(QHBoxLayout(), *items, margins=margins, spacing=spacing)


def column(*items: Item, margins: Margins | None = NONE, spacing: int | None = None) -> QVBoxLayout:
    """From top to bottom, as `row`."""
    return fill(QVBoxLayout(), *items, margins=margins, spacing=spacing)


def fill(layout: L, *items: Item, margins: Margins | None = NONE, spacing: int | None = None) -> L:
    if margins is not None:
        layout.setContentsMargins(*margins)
    if spacing is not None:
        layout.setSpacing(spacing)
    for item in items:
        thing, stretch, alignment = (*item, Qt.AlignmentFlag(0))[:3] if isinstance(item, tuple) else (item, 0, None)
        match thing:
            case None:
                layout.addStretch(1)
            case int():
                layout.addSpacing(thing)
            case QWidget():
                layout.addWidget(thing, stretch, alignment or Qt.AlignmentFlag(0))
            case _:
                layout.addLayout(thing, stretch)
    return layout


def held(layout: QLayout, role: str = "") -> QWidget:
    """A plain widget with this in it, in one of the style sheet's roles."""
    return _with(QWidget(), layout, role)


def panel(layout: QLayout, role: str = "panel") -> QFrame:
    """A frame with this in it."""
    return _with(QFrame(), layout, role)


class Scrolled(QScrollArea):
    """A `sheet` with a layout on it, which scrolls where there is too little room; `said` is for screen readers."""

    def __init__(self, layout: QLayout, name: str = "", said: str = "") -> None:
        super().__init__()
        named(self, name, said=said or name.removesuffix("_scroll").replace("_", " "))
        self.setWidgetResizable(True)
        self.sheet = held(layout, "sheet")
        self.setWidget(self.sheet)


def steady(host: QWidget) -> None:
    """The window around keeps its size while what is inside moves and asks for more than it needs in the end."""
    host.setMinimumSize(1, 1)
    QTimer.singleShot(0, host, lambda: host.setMinimumSize(0, 0))


W = TypeVar("W", bound=QWidget)


def named(widget: W, name: str, role: str = "", *, said: str = "", tip: str = "") -> W:
    """`name` for tests and styles, one of the style sheet's roles, `said` for screen readers."""
    widget.setObjectName(name)
    widget.setAccessibleName(said)
    widget.setToolTip(tip)
    if role:
        widget.setProperty("role", role)
    return widget


def _with(widget: W, layout: QLayout, role: str) -> W:
    if role:
        widget.setProperty("role", role)
    widget.setLayout(layout)
    return widget


def discard(layout: QLayout, *widgets: QWidget) -> None:
    """Takes widgets out of a layout for good."""
    for widget in widgets:
        layout.removeWidget(widget)
        widget.hide()
        widget.deleteLater()
