"""The table view of a panel's facts."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, Signal
from PySide6.QtGui import QGuiApplication, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from app.ui import theme
from app.ui.facts import Facts, cell_text

NO_FACTS = Facts(())
Index = QModelIndex | QPersistentModelIndex


class FactModel(QAbstractTableModel):
    """Facts as Qt's views want them."""

    def __init__(self) -> None:
        super().__init__()
        self.facts = NO_FACTS

    def show_facts(self, facts: Facts) -> None:
        """Other facts; the place in the table stays where the shape is the same."""
        same = facts.columns == self.facts.columns and len(facts.rows) == len(self.facts.rows)
        if same:
            self.facts = facts
            if facts.rows:
                last = self.index(len(facts.rows) - 1, len(facts.columns) - 1)
                self.dataChanged.emit(self.index(0, 0), last)
            return
        self.beginResetModel()
        self.facts = facts
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.facts.rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.facts.columns)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        cell = self.facts.rows[index.row()][index.column()]
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.ToolTipRole:
                return cell_text(cell)
            case Qt.ItemDataRole.TextAlignmentRole if isinstance(cell, (int, float)):
                return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            case _:
                return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation is Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return self.facts.columns[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        return None


class FactTable(QTableView):
    """Read-only. Enter or a double click chooses a row; Ctrl+C copies the rows that are selected, or all."""

    row_chosen = Signal(int)

    def __init__(self, name: str, title: str) -> None:
        super().__init__()
        self.setObjectName(name)
        self.setAccessibleName(f"{title}, as a table")
        self.facts_model = FactModel()
        self.setModel(self.facts_model)
        self.setShowGrid(False)
        self.setFrameShape(QTableView.Shape.NoFrame)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        self.activated.connect(lambda index: self.row_chosen.emit(index.row()))
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()

    def show_facts(self, facts: Facts) -> None:
        """Other facts; columns are fitted to them when their names change."""
        fit = facts.columns != self.facts_model.facts.columns
        self.facts_model.show_facts(facts)
        if fit:
            self.resizeColumnsToContents()

    def _on_theme(self) -> None:
        self.verticalHeader().setDefaultSectionSize(theme.px(24))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            facts = self.facts_model.facts
            rows = sorted({index.row() for index in self.selectedIndexes()}) or range(len(facts.rows))
            QGuiApplication.clipboard().setText(Facts(facts.columns, [facts.rows[row] for row in rows]).csv())
        else:
            super().keyPressEvent(event)
