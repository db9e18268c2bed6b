"""What a panel shows, as a table: for those who cannot see its picture, and for a spreadsheet. No Qt in here."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from app.language import digits

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Rows of the same length as `columns`. Numbers are exact here; how they are shown is the table's."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]] = ()

    def csv(self) -> str:
        """With a header line; empty cells for None."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return out.getvalue()


def cell_text(cell: Cell) -> str:
    """A cell in a table for people: whole numbers with separators, others with four digits."""
    match cell:
        case None:
            return "–"
        case bool() | str():
            return str(cell)
        case int():
            return digits(f"{cell:,}")
        case _:
            return digits(f"{cell:,.4g}")
