"""Widgets side by side, each in a panel of its own; their distances follow the zoom."""

from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.ui.layout.boxes import column, panel
from app.ui.layout.zoomed import zoomed


class SideBySide(QWidget):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.setObjectName(name)
        self._row = zoomed(QHBoxLayout(self), spacing=8)

    def add(self, *parts: QWidget) -> None:
        for part in parts:
            self._row.addWidget(panel(zoomed(column(part), (12, 12, 12, 10))), 1)
