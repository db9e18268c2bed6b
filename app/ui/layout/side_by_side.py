"""Widgets side by side, each in a panel of its own; their distances follow the zoom."""

from PySide6.QtWidgets import QFrame, QGridLayout, QWidget

from app.ui.layout.boxes import column, panel
from app.ui.layout.zoomed import zoomed


class SideBySide(QWidget):
    """In one line, or in several of `columns` each."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setObjectName(name)
        self._grid = zoomed(QGridLayout(self), spacing=8)
        self._panels: list[QFrame] = []
        self._placed: list[QFrame] = []
        self.columns = 0

    def add(self, *parts: QWidget) -> None:
        for part in parts:
            self._panels.append(panel(zoomed(column(part), (12, 12, 12, 10))))
            self._grid.addWidget(self._panels[-1], 0, len(self._panels))
        self.wrap(len(self._panels))

    def wrap(self, columns: int) -> None:
        """So many in a line of those that are not hidden."""
        shown = [each for each in self._panels if not each.isHidden()]
        if (columns, shown) != (self.columns, self._placed):
            for i in range(max(columns, self.columns)):
                self._grid.setColumnStretch(i, int(i < min(columns, len(shown))))
            for i, each in enumerate(shown):
                self._grid.addWidget(each, *divmod(i, columns))
            self.columns, self._placed = columns, shown

    def least(self, columns: int) -> int:
        """Pixels that so many in a line need."""
        widest = max((each.minimumSizeHint().width() for each in self._panels if not each.isHidden()), default=0)
        return columns * widest + (columns - 1) * self._grid.spacing()
