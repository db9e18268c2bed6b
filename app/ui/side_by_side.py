"""Widgets side by side, each in a panel of its own; their distances follow the zoom."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.ui import theme
from app.ui.layouts import column, panel


class SideBySide(QWidget):
    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._inner: list[QVBoxLayout] = []
        theme.changes.theme_changed.connect(self._fit)

    def add(self, *parts: QWidget) -> None:
        for part in parts:
            self._inner.append(column(part))
            self._row.addWidget(panel(self._inner[-1]), 1)
        self._fit()

    def _fit(self) -> None:
        pad = theme.px(12)
        self._row.setSpacing(theme.px(8))
        for inner in self._inner:
            inner.setContentsMargins(pad, pad, pad, pad - theme.px(2))
