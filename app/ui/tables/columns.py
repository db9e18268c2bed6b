"""Rows in columns declared once: what a cell says, what sorts it, what it tells those who cannot see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

Row = TypeVar("Row")
Index = QModelIndex | QPersistentModelIndex
Role = Qt.ItemDataRole
DOWN, UP = Qt.SortOrder.AscendingOrder, Qt.SortOrder.DescendingOrder  # the smallest, or the largest value first
ACROSS = Qt.Orientation.Horizontal


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """`value` is what sorts: None comes last; without it the words do. `tip` is the heading's, `width` its first one in
    pixels of the design."""

    title: str
    words: Callable[[Row], str]
    value: Callable[[Row], SupportsRichComparison | None] | None = None
    tip: str = ""
    right: bool = False
    width: float = 0


class ColumnModel(QAbstractTableModel, Generic[Row]):
    """Shows `rows`; one whose rows are worked out answers `row` and `rowCount` itself."""

    def __init__(self, columns: Sequence[Column[Row]] = ()) -> None:
        super().__init__()
        self.columns = columns
        self.rows: Sequence[Row] = ()

    def show_rows(self, rows: Sequence[Row], columns: Sequence[Column[Row]] | None = None) -> None:
        """Others than before, and other columns where they are given."""
        self.beginResetModel()
        self.rows = rows
        if columns is not None:
            self.columns = columns
        self.endResetModel()

    def row(self, place: int) -> Row | None:
        """The one at this place; None where none is."""
        return self.rows[place] if 0 <= place < len(self.rows) else None

    def tip(self, row: Row, column: int) -> str:
        """What a cell says under the pointer: itself, for it may be cut."""
        return self.columns[column].words(row)

    def said(self, row: Row, column: int) -> str:
        """What a cell says to a screen reader; "" is its words."""
        return ""

    def on_right(self, row: Row, column: int) -> bool:
        return self.columns[column].right

    def tell(self) -> None:
        """One signal for all cells: their rows went on."""
        if self.rowCount():
            self.dataChanged.emit(self.index(0, 0), self.index(self.rowCount() - 1, self.columnCount() - 1))

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.columns)

    def data(self, index: Index, role: int = Role.DisplayRole) -> object:
        row, column = self.row(index.row()), index.column()
        if row is None:
            return None
        match role:
            case Role.DisplayRole:
                return self.columns[column].words(row)
            case Role.ToolTipRole:
                return self.tip(row, column) or None
            case Role.AccessibleTextRole:
                return self.said(row, column) or None
            case Role.TextAlignmentRole:
                return _side(self.on_right(row, column))
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Role.DisplayRole) -> object:
        if orientation is not ACROSS or section >= len(self.columns):
            return None
        column = self.columns[section]
        match role:
            case Role.DisplayRole:
                return column.title
            case Role.ToolTipRole:
                return column.tip or None
            case Role.TextAlignmentRole:
                return _side(column.right)
        return None


class SortedModel(ColumnModel[Row]):
    """`order` holds the keys of its rows as they are shown: in the order of one column, those without a value last.

    A subclass says which `keys` there are, and what `row_of` each is.
    """

    def __init__(self, columns: Sequence[Column[Row]], by: int = 0) -> None:
        super().__init__(columns)
        self.by, self.direction = by, DOWN
        self.order: list[int] = []

    def keys(self) -> Iterable[int]:
        """Of all rows, in the order of those whose values are the same."""
        raise NotImplementedError

    def row_of(self, key: int) -> Row | None:
        raise NotImplementedError

    def row(self, place: int) -> Row | None:
        return self.row_of(self.order[place]) if 0 <= place < len(self.order) else None

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.order)

    def value(self, key: int) -> SupportsRichComparison | None:
        row, column = self.row_of(key), self.columns[self.by]
        return None if row is None else (column.value or column.words)(row)

    def arranged(self) -> list[int]:
        values = {key: self.value(key) for key in self.keys()}
        known = {key: value for key, value in values.items() if value is not None}
        order = sorted(known, key=known.__getitem__, reverse=self.direction is UP)
        return order + [key for key in values if key not in known]

    def arrange(self) -> None:
        """Sorts anew; nothing happens where the order is the same. Selections follow their rows."""
        order = self.arranged()
        if order == self.order:
            return
        self.layoutAboutToBeChanged.emit()
        places = {key: place for place, key in enumerate(order)}
        before = self.persistentIndexList()
        moved = [places.get(self.order[i.row()]) if i.row() < len(self.order) else None for i in before]
        self.order = order
        after = (
            QModelIndex() if place is None else self.index(place, i.column())
            for i, place in zip(before, moved, strict=True)
        )
        self.changePersistentIndexList(before, list(after))
        self.layoutChanged.emit()

    def sort(self, column: int, order: Qt.SortOrder = DOWN) -> None:
        self.by, self.direction = column, order
        self.arrange()

    def reset(self) -> None:
        """Its rows are others than before."""
        self.beginResetModel()
        self.order = self.arranged()
        self.endResetModel()


def _side(right: bool) -> Qt.AlignmentFlag:
    return Qt.AlignmentFlag.AlignVCenter | (Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft)
