"""Numbers of one trace in columns that grow together, a row a step or an event. No Qt in here."""

from __future__ import annotations

from typing import Any, Self

from engine.trace import Array, Column


class Numbers:
    """A column that a class declares: `begin = Numbers(np.float64)`, then `table.begin` is what there is so far."""

    def __init__(self, dtype: type) -> None:
        self.dtype = dtype

    def __set_name__(self, owner: type[Columns], name: str) -> None:
        self._name = name
        owner.names = (*owner.names, name)

    def __get__(self, table: Columns, owner: type[Columns]) -> Array:
        return table.columns[self._name].values


class Columns:
    """A subclass declares its columns, and lists numbers in their order."""

    names: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.columns = {name: Column(vars(type(self))[name].dtype) for name in self.names}

    def __len__(self) -> int:
        return len(getattr(self, self.names[0]))

    def append(self, *values: float) -> None:
        """One more row."""
        for column, value in zip(self.columns.values(), values):
            column.extend(value, 1)

    def extend(self, count: int, *values: Array | float) -> None:
        """So many more rows; one number is the same in all of them."""
        for column, value in zip(self.columns.values(), values):
            column.extend(value, count)

    def where(self, which: Array | slice) -> Self:
        """These rows alone; they do not grow."""
        rows = object.__new__(type(self))
        rows.__dict__.update((name, getattr(self, name)[which]) for name in self.names)
        return rows

    def numbers_at(self, place: int) -> dict[str, Any]:
        """Its numbers by column. Raises IndexError where there is none."""
        if not 0 <= place < len(self):
            raise IndexError(f"row {place} of {len(self)}")
        return {name: column.values[place].item() for name, column in self.columns.items()}
