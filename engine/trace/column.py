"""A growing array of numbers."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Column:
    """Appending costs O(1) on average; `values` is a view of what there is so far."""

    __slots__ = ("_values", "count")

    def __init__(self, dtype: Any) -> None:
        self._values: Array = np.zeros(256, dtype)
        self.count = 0

    def extend(self, values: Any, count: int) -> None:
        """Appends `count` numbers, or one number so many times."""
        end = self.count + count
        if end > len(self._values):
            more = np.zeros(max(end, 2 * len(self._values)), self._values.dtype)
            more[: self.count] = self._values[: self.count]
            self._values = more
        self._values[self.count : end] = values
        self.count = end

    def append(self, value: Any) -> None:
        """Appends one number."""
        self.extend(value, 1)

    @property
    def values(self) -> Array:
        return self._values[: self.count]

    def __frozen__(self) -> dict[str, Any]:
        """What is kept of it: `engine.trace.index`."""
        return {"_values": self.values, "count": self.count}
