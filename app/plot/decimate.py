"""A series of many values as the few that a picture has columns for. No Qt in here."""

import numpy as np

from engine.trace import Array


def decimate(low: Array, high: Array, columns: int) -> tuple[Array, Array, Array]:
    """The smallest of `low` and largest of `high` in each of at most `columns` runs of neighbours, and the runs' first
    places. NaN counts as nothing there; a run of nothing is NaN."""
    count = len(low)
    if count <= columns:
        return low, high, np.arange(count)
    starts = np.linspace(0, count, columns, endpoint=False).astype(np.int64)
    return np.fmin.reduceat(low, starts), np.fmax.reduceat(high, starts), starts


def drawn_order(low: Array, high: Array) -> tuple[Array, Array]:
    """Each run's extremes in the order in which a line passes them: downwards where the line falls into the run."""
    middle = low + high
    falls = np.diff(middle, prepend=middle[:1]) < 0
    return np.where(falls, high, low), np.where(falls, low, high)
