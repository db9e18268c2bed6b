"""Numbers of one trace in columns that grow together, a row a step or an event. No Qt in here."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from engine.trace import Array, Column

AT_ONCE = 4096  # rows that wait to become columns, at most


class Numbers:
    """A column that a class declares: `begin = Numbers(np.float64)`, then `table.begin` is what there is so far."""

    def __init__(self, dtype: type) -> None:
        self.dtype = dtype

    def __set_name__(self, owner: type[Columns], name: str) -> None:
        self._name = name
        owner.names = (*owner.names, name)

    def __get__(self, table: Columns, owner: type[Columns]) -> Array:
        columns = table.settled() if table._new else table._columns
        return columns[self._name].values


class Columns:
    """A subclass declares its columns, and lists numbers in their order."""

    names: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._columns = {name: Column(vars(type(self))[name].dtype) for name in self.names}
        self._new: list[tuple[float, ...]] = []  # rows that nobody asked for yet: many at once cost little each

    def __len__(self) -> int:
        return len(getattr(self, self.names[0]))

    def __frozen__(self) -> dict[str, Any]:
        """What is kept of it: `engine.trace.index`. The columns themselves, and what a subclass has beside them."""
        self.settled()
        return dict(vars(self))

    def settled(self) -> dict[str, Column]:
        """The columns, with all rows in them."""
        if self._new:
            new, self._new = self._new, []
            for column, values in zip(self._columns.values(), zip(*new)):
                column.extend(values, len(new))
        return self._columns

    def append(self, *values: float) -> None:
        """One more row."""
        self._new.append(values)
        if len(self._new) == AT_ONCE:
            self.settled()

    def extend(self, count: int, *values: Array | float) -> None:
        """So many more rows; one number is the same in all of them."""
        for column, value in zip(self.settled().values(), values):
            column.extend(value, count)

    def grow_to(self, length: int, *values: float) -> None:
        """So many rows at least; those that are missing are all like this."""
        self.extend(max(0, length - len(self)), *values)

    def where(self, which: Array | slice) -> Self:
        """These rows alone; they do not grow."""
        rows = object.__new__(type(self))
        rows.__dict__.update((name, getattr(self, name)[which]) for name in self.names)
        return rows

    def numbers_at(self, place: int) -> dict[str, Any]:
        """Its numbers by column. Raises IndexError where there is none."""
        if not 0 <= place < len(self):
            raise IndexError(f"row {place} of {len(self)}")
        return {name: column.values[place].item() for name, column in self.settled().items()}

    def last_at(self, name: str, moment: float) -> int:
        """The last row whose number in a rising column is no higher; -1 before the first."""
        return int(np.searchsorted(getattr(self, name), moment, "right")) - 1


def whole(column: Array, count: int) -> Array:
    """A record's column, which is empty there where all of it is 0."""
    return column if len(column) else np.zeros(count, np.int32)
