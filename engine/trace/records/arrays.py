"""The columns of records: read-only arrays, `freeze` them before they are shared."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from engine.trace.column import Array


def freeze(array: Array) -> Array:
    """The same array, closed to writing."""
    array.flags.writeable = False
    return array


EMPTY: dict[type, Array] = {dtype: freeze(np.empty(0, dtype)) for dtype in (np.int32, np.int64, np.uint8, np.float32)}


def empty(dtype: type) -> Any:
    """A column that is empty unless it is given, as most columns of most steps are."""
    return field(default_factory=lambda: EMPTY[dtype])
