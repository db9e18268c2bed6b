"""The table view of a panel's facts."""

from collections.abc import Sequence

from PySide6.QtCore import Signal

from app.language import tr
from app.ui.tables.columns import Column, ColumnModel
from app.ui.tables.facts import Cell, Facts, cell_text
from app.ui.tables.view import TableView

NO_FACTS = Facts(())
LINE = 24


def cell_column(place: int, title: str, tip: str = "", *, right: bool = False) -> Column[Sequence[Cell]]:
    """Of rows that are cells."""
    return Column(title, lambda row: cell_text(row[place]), tip=tip, right=right)


class FactModel(ColumnModel[Sequence[Cell]]):
    """Facts as Qt's views want them."""

    facts = NO_FACTS

    def show_facts(self, facts: Facts) -> None:
        """Other facts; the place in the table stays where the shape is the same."""
        same = facts.columns == self.facts.columns and len(facts.rows) == len(self.facts.rows)
        self.facts = facts
        if same:
            self.rows = facts.rows
            self.tell()
        else:
            self.show_rows(facts.rows, [cell_column(i, title) for i, title in enumerate(facts.columns)])

    def on_right(self, row: Sequence[Cell], column: int) -> bool:
        return isinstance(row[column], (int, float))


class FactTable(TableView):
    """Read-only. Enter or a double click chooses a row; Ctrl+C copies the rows that are selected, or all."""

    row_chosen = Signal(int)

    def __init__(self, name: str, title: str) -> None:
        model = FactModel()
        super().__init__(name, tr("{title}, as a table", title=title), model, None, LINE)
        self.facts_model = model
        self.setVerticalScrollMode(TableView.ScrollMode.ScrollPerItem)
        self.setFrameShape(TableView.Shape.NoFrame)
        self.setTabKeyNavigation(False)
        self.activated.connect(lambda index: self.row_chosen.emit(index.row()))

    def show_facts(self, facts: Facts) -> None:
        """Other facts; columns are fitted to them when their names change."""
        fit = facts.columns != self.facts_model.facts.columns
        self.facts_model.show_facts(facts)
        if fit:
            self.resizeColumnsToContents()

    def copied(self) -> str:
        facts = self.facts_model.facts
        rows = self.picked() or range(len(facts.rows))
        return Facts(facts.columns, [facts.rows[row] for row in rows]).csv()
