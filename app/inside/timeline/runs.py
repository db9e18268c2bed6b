"""What a timeline draws: runs, each a slot busy with one thing from one second to another. No Qt in here.

A step's row is a cell; a cell continues the run before it in its slot when request and shade are the same. So the store
is O(runs), feeding O(new rows), and any split of the records into batches gives the same runs. Steps are not kept: one
that is asked for is read back from where they are.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from app.inside.columns import Columns, Numbers, whole
from engine.trace import Array, Header, Kind, Record, Step, Submitted

BLOCK = 256  # runs whose common span is known, so that those out of sight are not looked at
LEVELS = 6  # a row that computes again what it has known: one token in 2, 4 … 64 is new


class Shade(IntEnum):
    """How a run is drawn. SOLID: decode. HATCH: prefill. GREY: pad tokens, and rows held until the longest ends.
    CROSS: computed and thrown away. LINE: a running request that waits while a step computes others.
    AGAIN + i: one token in 2^(i+1) is new, the rest is computed again."""

    SOLID = 0
    HATCH = 1
    GREY = 2
    CROSS = 3
    LINE = 4
    AGAIN = 5


SHADES = Shade.AGAIN + LEVELS
NEW_SHARE = np.array([1.0, 1.0, 0.0, 0.0, 0.0, *(2.0 ** -(i + 1) for i in range(LEVELS))], np.float32)
_OF_KIND = np.array([Shade.HATCH, Shade.SOLID, Shade.GREY], np.uint8)


@dataclass(frozen=True, slots=True)
class Cell:
    """What a slot did at a moment. `kind` is None while a running request waited for the step `step`. `heard`: of a
    server's request nothing but its pieces of text is known, from the first, at `begin`, to the last so far."""

    slot: int
    request: int
    kind: Kind | None
    step: int
    count: int
    padding: int
    wasted: int
    begin: float
    end: float
    drafted: int = 0
    heard: bool = False


class _Spans(Columns):
    begins, ends = Numbers(np.float64), Numbers(np.float64)


class _Slots(Columns):
    """By slot: what ran there last, in which step and until when, and its run."""

    request, shade, step = Numbers(np.int32), Numbers(np.uint8), Numbers(np.int64)
    run, until = Numbers(np.int64), Numbers(np.float64)


class TimelineCells(Columns):
    """The runs of one trace, in the order in which their steps ended. `begins` and `ends` are seconds; in the step
    `first_places` a run begins (the next one where that is idle time before it), in `last_places` it ends, or at whose
    beginning.

    `step_reader` gives back the step of a place among all steps that were fed; without one the steps are kept.
    `adapters` are the names of the model's; `through` has the number of its adapter, from 1, of each request that goes
    through one.
    """

    slot, request, shade = Numbers(np.int32), Numbers(np.int32), Numbers(np.uint8)
    begins, ends = Numbers(np.float64), Numbers(np.float64)
    first_places, last_places = Numbers(np.int32), Numbers(np.int32)

    def __init__(self, step_reader: Callable[[int], Step] | None = None) -> None:
        self.step_reader = step_reader
        self.clear()

    def clear(self) -> None:
        """Forgets everything: another trace begins."""
        super().__init__()
        self._blocks = _Spans()  # when the first run of a block begins, the last ends
        self._steps = _Spans()
        self._kept: list[Step] = []
        self.end = 0.0
        self.changed = np.inf  # the earliest second that was told anew since whoever draws set it back
        self.requests = 0  # one more than the highest id
        self.adapters: tuple[str, ...] = ()
        self.through: dict[int, int] = {}
        self._last = _Slots()

    def __frozen__(self) -> dict[str, Any]:
        """Without who reads steps."""
        return super().__frozen__() | {"step_reader": None}

    @property
    def slots(self) -> int:
        """How many were used so far."""
        return len(self._last)

    @property
    def steps(self) -> int:
        """How many steps were fed."""
        return len(self._steps)

    @property
    def step_begins(self) -> Array:
        """Seconds, by step: a step that was launched before its predecessor was over begins when that was."""
        return self._steps.begins

    @property
    def step_ends(self) -> Array:
        return self._steps.ends

    def feed(self, records: Iterable[Record], origin: float = 0.0) -> None:
        """Takes the next records of the trace. `origin`: the trace's time at which this timeline begins."""
        for record in records:
            match record:
                case Step():
                    self._feed(record, origin)
                case Submitted() if record.params.adapter in self.adapters:
                    self.through[record.request] = 1 + self.adapters.index(record.params.adapter)
                case Header():
                    self.adapters = record.model.adapters
                case _:
                    pass

    def span(self, request: int) -> tuple[float, float] | None:
        """From a request's first cell to its last."""
        own = np.flatnonzero(self.request == request)
        return (float(self.begins[own[0]]), float(self.ends[own].max())) if len(own) else None

    def near(self, begin: float, end: float) -> Array | slice:
        """The runs that may be in sight between two moments: all that are, and few others."""
        blocks = np.flatnonzero((self._blocks.ends > begin) & (self._blocks.begins < end))
        if not len(blocks):
            return slice(0, 0)
        first, last = int(blocks[0]), int(blocks[-1])
        if last - first < 2 * len(blocks):
            return slice(first * BLOCK, min((last + 1) * BLOCK, len(self)))
        runs = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        return runs[runs < len(self)]

    def place_at(self, time: float) -> int:
        """The place of the step that was under way, or of the last one before; -1 before the first."""
        return bisect_right(self.step_begins, time) - 1

    def step_at(self, place: int) -> Step:
        """The step of this place. Raises IndexError where there is none."""
        return (self.step_reader or self._kept.__getitem__)(place)

    def at(self, time: float, slot: int) -> Cell | None:
        """The cell at a moment; None where the slot was idle."""
        place = self.place_at(time)
        if place < 0 or not 0 <= slot < self.slots:
            return None
        step, begin, end = self.step_at(place), float(self.step_begins[place]), float(self.step_ends[place])
        if time < end:
            rows = np.flatnonzero(step.slot == slot)
            if len(rows):
                columns = (step.count, whole(step.padding, step.rows), step.wasted, whole(step.drafted, step.rows))
                count, padding, wasted, drafted = (int(column[rows[0]]) for column in columns)
                request, kind = int(step.request[rows[0]]), Kind(int(step.kind[rows[0]]))
                return Cell(slot, request, kind, step.step, count, padding, wasted, begin, end, drafted)
        near = self.near(time, np.nextafter(time, np.inf))
        begins, ends = self.begins[near], self.ends[near]
        heard = begin == end
        shade = Shade.SOLID if heard else Shade.LINE
        here = (self.slot[near] == slot) & (self.shade[near] == shade) & (begins <= time) & (time < ends)
        runs = np.flatnonzero(here)
        if not len(runs):
            return None
        what, run = Kind.DECODE if heard else None, runs[0]
        owner, since, until = int(self.request[near][run]), float(begins[run]), float(ends[run])
        return Cell(slot, owner, what, step.step, 0, 0, 0, since, until, heard=heard)

    # -- feeding --------------------------------------------------------------------------------------------------

    def _feed(self, step: Step, origin: float) -> None:
        begin = max(step.started - origin, self.end)
        end = max(step.ended - origin, begin)
        if self.step_reader is None:
            self._kept.append(step)
        place = self.steps
        self._steps.append(begin, end)
        self.changed = min(self.changed, self.end)
        self.end = end
        last = self._last
        if len(step.preempted):
            last.request[np.isin(last.request, step.preempted)] = -1
        rows = np.flatnonzero(step.slot >= 0)
        if not len(rows):
            return
        slot, request, count, wasted = step.slot[rows], step.request[rows], step.count[rows], step.wasted[rows]
        padding = whole(step.padding, step.rows)[rows]
        shade = shades(step.kind[rows], count, wasted)
        padded = np.flatnonzero((padding > 0) & (shade != Shade.GREY))
        last.grow_to(int(slot.max()) + 1, -1, 0, -9, 0, 0.0)
        self.requests = max(self.requests, int(request.max()) + 1)

        same = last.request[slot] == request
        # of a server only its clients' pieces are seen: a request is at work from one to the next
        heard = step.started == step.ended and not step.standing
        next_step = (last.step[slot] == place - 1) | heard
        goes_on = same & next_step & (last.shade[slot] == shade)
        goes_on[padded] = False
        runs = last.run[slot]
        if heard and goes_on.any():
            self.changed = min(self.changed, float(last.until[slot[goes_on]].min()))
        self.ends[runs[goes_on]] = end
        self.last_places[runs[goes_on]] = place
        self._blocks.ends[runs[goes_on] // BLOCK] = end

        waited = np.flatnonzero(same & ~next_step)
        if len(waited):
            at = slot[waited]
            since = last.until[at]
            self.changed = min(self.changed, float(since.min()))
            self._append(at, request[waited], Shade.LINE, since, begin, last.step[at] + 1, place)
        starts = np.full(len(slot), begin)
        if len(padded):
            share = padding[padded] / (padding[padded] + count[padded])
            starts[padded] += share * (end - begin)
            self._append(slot[padded], request[padded], Shade.GREY, begin, starts[padded], place, place)
        new = np.flatnonzero(~goes_on)
        runs[new] = len(self) + np.arange(len(new))
        self._append(slot[new], request[new], shade[new], starts[new], end, place, place)

        last.request[slot], last.shade[slot], last.run[slot] = request, shade, runs
        last.step[slot], last.until[slot] = place, end

    def _append(self, slot: Array, *rest: Array | float) -> None:
        if not len(slot):
            return
        block = len(self) // BLOCK
        self.extend(len(slot), slot, *rest)
        begins, ends = (column[-len(slot) :] for column in (self.begins, self.ends))
        blocks = self._blocks
        blocks.grow_to((len(self) - 1) // BLOCK + 1, np.inf, -np.inf)
        np.minimum(blocks.begins[block:], begins.min(), out=blocks.begins[block:])
        np.maximum(blocks.ends[block:], ends.max(), out=blocks.ends[block:])


def shades(kind: Array, count: Array, wasted: Array) -> Array:
    """The shade of each row. A row wasted in part shows its share of new tokens, as the nearest power of a half."""
    shade = _OF_KIND[kind]
    lost = np.flatnonzero((wasted > 0) & (kind != Kind.HELD))
    if len(lost):
        new = count[lost] - wasted[lost]
        level = np.rint(-np.log2(np.maximum(new, 1) / count[lost])).astype(np.int64)
        again = Shade.AGAIN + np.clip(level - 1, 0, LEVELS - 1)
        shade[lost] = np.where(new > 0, again, Shade.CROSS)
    return shade
