"""Which run each pixel of a timeline shows: what is in sight, summed where runs are finer than a pixel. No Qt in here.

The cost is O(runs in sight + pixels), whatever the zoom: a run of a pixel or more is snapped to whole pixels, and a
pixel that finer runs touch holds the exact share of each look in it.
"""

from dataclasses import dataclass

import numpy as np

from app.inside.timeline.axis import Axis, places_of, run_places, times_of
from app.inside.timeline.runs import SHADES, Shade, TimelineCells
from app.plot.folds import NONE, Folds
from engine.trace import Array

MAJORITY = 0.5
CHUNK = 16_384  # narrow runs at a time: what is made on the way stays in the cache, and no fresh memory is asked for
SHARED = Shade.AGAIN  # looks that a shared pixel tells apart
_SHARED_LOOK = np.minimum(np.arange(SHADES, dtype=np.int32), SHARED)
_SHARED_LOOK[Shade.AGAIN :] = Shade.CROSS


@dataclass(slots=True)
class Raster:
    """`owner` [rows, columns]: the run each pixel shows, -1 where nothing ran. `mixed`: flat indices of the pixels that
    more than one run or less than a whole one share, and `shares` [SHARED, mixed] what each look covers of them (work
    done again counts as thrown away). `heads`: flat indices of the first pixels of runs that follow another without a
    gap."""

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
    axis: Axis = Axis.TIME,
    folds: Folds = NONE,
    left: int = 0,
) -> Raster:
    """What the axis has in `[begin, end)` in so many pixels, of what had happened at the moment `until`.

    Runs of at least `gap` pixels have a head where they follow another run. Without the first `left` of the pixels: the
    others are those that the whole has there.
    """
    scale = columns / (end - begin)
    zero, begin, columns = begin, begin + left / scale, columns - left
    size = rows * columns
    owner = np.full(size, -1, np.int32)
    nothing = np.zeros(0, np.int64)
    empty = Raster(owner.reshape(rows, columns), nothing, np.zeros((SHARED, 0)), nothing)
    timed = axis is Axis.TIME or not cells.steps
    stop = end
    if until < np.inf:
        stop = min(end, float(folds.values(until) if timed else places_of(cells.step_begins, cells.step_ends, until)))
    if stop <= begin:
        return empty
    sight = (begin, stop)
    moments = folds.times(sight) if timed else times_of(cells.step_begins, cells.step_ends, sight)
    near = cells.near(float(moments[0]), np.nextafter(float(moments[1]), np.inf))
    begins, ends, slot = cells.begins[near], cells.ends[near], cells.slot[near]
    if timed:
        begins, ends = folds.values(begins), folds.values(ends)
    else:
        begins, ends = (
            run_places(cells.step_begins, cells.step_ends, places[near], times)
            for places, times in ((cells.first_places, begins), (cells.last_places, ends))
        )
    inside = np.flatnonzero((ends > begin) & (begins < stop) & (slot < rows * slots_a_row))
    if not len(inside):
        return empty
    seen = inside + near.start if isinstance(near, slice) else near[inside]
    low = np.clip((begins[inside] - zero) * scale - left, 0.0, np.nextafter(columns, 0))
    high = np.minimum((np.minimum(ends[inside], stop) - zero) * scale - left, columns)
    base = slot[inside] if slots_a_row == 1 else slot[inside] // slots_a_row
    base = base * np.int32(columns)

    wide = high - low >= 1.0
    narrow = np.flatnonzero(~wide)
    mixed, shares = nothing, np.zeros((SHARED, 0))
    if len(narrow):
        mixed, shares = _shared(cells.shade[seen], seen, low, high, base, narrow, np.flatnonzero(wide), owner)
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
    shade: Array, runs: Array, low: Array, high: Array, base: Array, narrow: Array, wide: Array, owner: Array
) -> tuple[Array, Array]:
    """The pixels that narrow runs touch, and what covers them. Gives each to a run that covers most of it, or any."""
    covered = np.zeros(SHARED * len(owner), np.float32)
    touched = np.zeros(len(owner), bool)

    def cover(place: Array, share: Array, run: Array) -> None:
        most = np.flatnonzero(share >= MAJORITY)
        owner[place[most]] = runs[run[most]]
        np.add.at(covered, _SHARED_LOOK[shade[run]] * len(owner) + place, share)

    for begin in range(0, len(narrow), CHUNK):
        place, share, run = _narrow_pieces(narrow[begin : begin + CHUNK], low, high, base)
        touched[place] = True
        owner[place] = runs[run]
        cover(place, share, run)
    edges = _edge_pieces(wide, low, high, base)
    inside = np.flatnonzero(touched[edges[0]])
    cover(*(part[inside] for part in edges))
    mixed = np.flatnonzero(touched)
    shares = covered.reshape(SHARED, -1)[:, mixed]
    return mixed, shares / np.maximum(shares.sum(axis=0), 1.0)


def _narrow_pieces(which: Array, low: Array, high: Array, base: Array) -> tuple[Array, Array, Array]:
    """The one or two pixels of runs narrower than one: flat indices, how much of each is covered, and the runs."""
    begin, share = low[which], high[which]
    first = begin.astype(np.int32)
    place = base[which] + first
    begin -= first
    share -= first  # both within the first pixel now
    two = np.flatnonzero(share > 1)
    spill = share[two] - 1
    share[two] = 1
    share -= begin
    shares = np.concatenate((share, spill)).astype(np.float32)
    return np.concatenate((place, place[two] + 1)), shares, np.concatenate((which, which[two]))


def _edge_pieces(which: Array, low: Array, high: Array, base: Array) -> tuple[Array, Array, Array]:
    """The first and the last pixel of runs of a pixel or more, likewise."""
    begin, end, row = low[which], high[which], base[which]
    first = begin.astype(np.int32)
    last = np.maximum(np.ceil(end).astype(np.int32) - 1, first)
    two = np.flatnonzero(last > first)
    left = np.minimum(end, first + 1) - begin
    shares = np.concatenate((left, (end - last)[two])).astype(np.float32)
    return np.concatenate((row + first, (row + last)[two])), shares, np.concatenate((which, which[two]))
