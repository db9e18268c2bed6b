"""Which run each pixel of a timeline shows: what is in sight, summed where runs are finer than a pixel. No Qt in here.

The cost is O(runs in sight + pixels), whatever the zoom: a run of a pixel or more is snapped to whole pixels, and a
pixel that finer runs touch holds the exact share of each look in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.panels.timeline_cells import LOOKS, Array, TimelineCells

MAJORITY = 0.5


@dataclass(slots=True)
class Raster:
    """`owner` [rows, columns]: the run each pixel shows, -1 where nothing ran. `mixed`: flat indices of the pixels that
    more than one run or less than a whole one share, and `shares` [looks, mixed] what each look covers of them.
    `heads`: flat indices of the first pixels of runs that follow another without a gap."""

    owner: Array
    mixed: Array
    shares: Array
    heads: Array


def raster(
    cells: TimelineCells,
    begin: float,
    end: float,
    columns: int,
    rows: int,
    *,
    until: float = np.inf,
    slots_a_row: int = 1,
    gap: int = 3,
) -> Raster:
    """The seconds `[begin, end)` in so many pixels, of what had happened `until` then.

    Runs of at least `gap` pixels have a head where they follow another run.
    """
    size = rows * columns
    owner = np.full(size, -1, np.int32)
    nothing = np.zeros(0, np.int64)
    stop = min(end, until)
    seen = np.flatnonzero((cells.ends > begin) & (cells.begins < stop) & (cells.slot < rows * slots_a_row))
    if not len(seen) or end <= begin:
        return Raster(owner.reshape(rows, columns), nothing, np.zeros((LOOKS, 0)), nothing)
    scale = columns / (end - begin)
    low = np.maximum((cells.begins[seen] - begin) * scale, 0.0)
    high = np.minimum((np.minimum(cells.ends[seen], stop) - begin) * scale, float(columns))
    base = (cells.slot[seen] // slots_a_row).astype(np.int64) * columns

    wide = high - low >= 1.0
    mixed, shares = _shared(cells, seen, low, high, base, wide, owner)
    heads = _fill(seen[wide], low[wide], high[wide], base[wide], owner, columns, gap)
    return Raster(owner.reshape(rows, columns), mixed, shares, heads)


def _fill(runs: Array, low: Array, high: Array, base: Array, owner: Array, columns: int, gap: int) -> Array:
    """Gives whole pixels to the wide runs; returns the heads among them."""
    first = np.floor(low + 0.5).astype(np.int64)
    lengths = np.minimum(np.floor(high + 0.5).astype(np.int64), columns) - first
    starts = base + first
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    owner[places] = np.repeat(runs, lengths)
    follows = np.flatnonzero((first > 0) & (lengths >= gap))
    heads = starts[follows]
    return heads[(owner[heads] == runs[follows]) & (owner[heads - 1] >= 0)]


def _shared(
    cells: TimelineCells, runs: Array, low: Array, high: Array, base: Array, wide: Array, owner: Array
) -> tuple[Array, Array]:
    """The pixels that fine runs touch, and what covers them. Gives each to a run that covers most of it, or any."""
    first, last = np.floor(low).astype(np.int64), np.ceil(high).astype(np.int64) - 1
    last = np.maximum(first, last)
    fine = np.flatnonzero(~wide)
    touched = np.zeros(len(owner), bool)
    for edge in (first, last):
        touched[(base + edge)[fine]] = True
    mixed = np.flatnonzero(touched)
    if not len(mixed):
        return mixed, np.zeros((LOOKS, 0))
    index = np.zeros(len(owner), np.int64)
    index[mixed] = np.arange(len(mixed))

    two = last > first
    left = np.where(two, first + 1 - low, high - low)
    right = (high - last)[two]
    place = np.concatenate((base + first, (base + last)[two]))
    cover = np.concatenate((left, right))
    run = np.concatenate((runs, runs[two]))
    inside = touched[place]
    place, cover, run = place[inside], cover[inside], run[inside]
    owner[place] = run
    most = cover >= MAJORITY
    owner[place[most]] = run[most]

    bins = cells.look[run].astype(np.int64) * len(mixed) + index[place]
    shares = np.bincount(bins, cover, LOOKS * len(mixed)).reshape(LOOKS, len(mixed))
    # a wide run that covers the pixel as a whole has no edge in it
    return mixed, shares / np.maximum(shares.sum(axis=0), 1.0)
