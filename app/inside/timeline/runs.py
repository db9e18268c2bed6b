"""What a timeline draws: runs, each a slot busy with one thing from one second to another. No Qt in here.

A step's row is a cell; a cell continues the run before it in its slot when request and shade are the same. So the store
is O(runs), feeding O(new rows), and any split of the records into batches gives the same runs. Steps are not kept: one
that is asked for is read back from where they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from engine.trace import Array, Column, Kind, Record, Step

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
    """What a slot did at a moment. `kind` is None while a running request waited for the step `step`."""

    slot: int
    request: int
    kind: Kind | None
    step: int
    count: int
    padding: int
    wasted: int
    begin: float
    end: float


class TimelineCells:
    """The runs of one trace, in the order in which their steps ended: columns `slot`, `request`, `shade`, `begins`,
    `ends`, and the places of the steps in which a run begins and ends.

    `step_reader` gives back the step of a place among all steps that were fed; without one the steps are kept.
    """

    def __init__(self, step_reader: Callable[[int], Step] | None = None) -> None:
        self.step_reader = step_reader
        self.clear()

    def clear(self) -> None:
        """Forgets everything: another trace begins."""
        self._columns = (
            Column(np.int32), Column(np.int32), Column(np.uint8), Column(np.float64), Column(np.float64),
            Column(np.int32), Column(np.int32),
        )  # fmt: skip
        self._blocks = (Column(np.float64), Column(np.float64))  # when the first run of a block begins, the last ends
        self._kept: list[Step] = []
        self._begins, self._ends = Column(np.float64), Column(np.float64)
        self.end = 0.0
        self.changed = np.inf  # the earliest second that was told anew since whoever draws set it back
        self.slots = 0
        self.requests = 0  # one more than the highest id
        # By slot: what ran there last, in which step, and its run.
        self._request = np.zeros(0, np.int32)
        self._shade = np.zeros(0, np.uint8)
        self._step = np.zeros(0, np.int64)
        self._run = np.zeros(0, np.int64)
        self._until = np.zeros(0, np.float64)

    def __len__(self) -> int:
        return self._columns[0].count

    @property
    def slot(self) -> Array:
        return self._columns[0].values

    @property
    def request(self) -> Array:
        return self._columns[1].values

    @property
    def shade(self) -> Array:
        return self._columns[2].values

    @property
    def begins(self) -> Array:
        """Seconds, by run."""
        return self._columns[3].values

    @property
    def ends(self) -> Array:
        return self._columns[4].values

    @property
    def first_places(self) -> Array:
        """The place of the step in which each run begins; the next one's where that is idle time before it."""
        return self._columns[5].values

    @property
    def last_places(self) -> Array:
        """The place of the step in which each run ends, or at whose beginning."""
        return self._columns[6].values

    @property
    def steps(self) -> int:
        """How many steps were fed."""
        return self._ends.count

    @property
    def step_begins(self) -> Array:
        """Seconds, by step: a step that was launched before its predecessor was over begins when that was."""
        return self._begins.values

    @property
    def step_ends(self) -> Array:
        return self._ends.values

    def feed(self, records: Iterable[Record], origin: float = 0.0) -> None:
        """Takes the next records of the trace. `origin`: the trace's time at which this timeline begins."""
        for record in records:
            if isinstance(record, Step):
                self._feed(record, origin)

    def span(self, request: int) -> tuple[float, float] | None:
        """From a request's first cell to its last."""
        own = np.flatnonzero(self.request == request)
        return (float(self.begins[own[0]]), float(self.ends[own].max())) if len(own) else None

    def near(self, begin: float, end: float) -> Array | slice:
        """The runs that may be in sight between two moments: all that are, and few others."""
        begins, ends = (column.values for column in self._blocks)
        blocks = np.flatnonzero((ends > begin) & (begins < end))
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
                row = rows[0]
                padding = int(step.padding[row]) if len(step.padding) else 0
                return Cell(
                    slot, int(step.request[row]), Kind(int(step.kind[row])), step.step, int(step.count[row]), padding,
                    int(step.wasted[row]), begin, end,
                )  # fmt: skip
        near = self.near(time, np.nextafter(time, np.inf))
        begins, ends = self.begins[near], self.ends[near]
        waits = (self.slot[near] == slot) & (self.shade[near] == Shade.LINE) & (begins <= time) & (time < ends)
        runs = np.flatnonzero(waits)
        if not len(runs):
            return None
        run = runs[0]
        return Cell(slot, int(self.request[near][run]), None, step.step, 0, 0, 0, float(begins[run]), float(ends[run]))

    # -- feeding --------------------------------------------------------------------------------------------------

    def _feed(self, step: Step, origin: float) -> None:
        begin = max(step.started - origin, self.end)
        end = max(step.ended - origin, begin)
        if self.step_reader is None:
            self._kept.append(step)
        place = self.steps
        self._begins.append(begin)
        self._ends.append(end)
        self.changed = min(self.changed, self.end)
        self.end = end
        if len(step.preempted):
            self._request[np.isin(self._request, step.preempted)] = -1
        rows = np.flatnonzero(step.slot >= 0)
        if not len(rows):
            return
        slot, request, count, wasted = step.slot[rows], step.request[rows], step.count[rows], step.wasted[rows]
        padding = step.padding[rows] if len(step.padding) else np.zeros(len(slot), np.int32)
        shade = shades(step.kind[rows], count, wasted)
        padded = np.flatnonzero((padding > 0) & (shade != Shade.GREY))
        self._reach(int(slot.max()) + 1)
        self.requests = max(self.requests, int(request.max()) + 1)

        same = self._request[slot] == request
        next_step = self._step[slot] == place - 1
        goes_on = same & next_step & (self._shade[slot] == shade)
        goes_on[padded] = False
        runs = self._run[slot]
        self._columns[4].values[runs[goes_on]] = end
        self._columns[6].values[runs[goes_on]] = place
        self._blocks[1].values[runs[goes_on] // BLOCK] = end

        waited = np.flatnonzero(same & ~next_step)
        if len(waited):
            at = slot[waited]
            self.changed = min(self.changed, float(self._until[at].min()))
            self._append(at, request[waited], Shade.LINE, self._until[at], begin, self._step[at] + 1, place)
        starts = np.full(len(slot), begin)
        if len(padded):
            share = padding[padded] / (padding[padded] + count[padded])
            starts[padded] += share * (end - begin)
            self._append(slot[padded], request[padded], Shade.GREY, begin, starts[padded], place, place)
        new = np.flatnonzero(~goes_on)
        runs[new] = len(self) + np.arange(len(new))
        self._append(slot[new], request[new], shade[new], starts[new], end, place, place)

        self._request[slot], self._shade[slot], self._run[slot] = request, shade, runs
        self._step[slot], self._until[slot] = place, end

    def _append(self, slot: Array, request: Array, shade: Any, begin: Any, end: Any, first: Any, last: Any) -> None:
        if not len(slot):
            return
        block = len(self) // BLOCK
        for column, values in zip(self._columns, (slot, request, shade, begin, end, first, last)):
            column.extend(values, len(slot))
        begins, ends = self._blocks
        more = (len(self) - 1) // BLOCK + 1 - begins.count
        begins.extend(np.inf, more)
        ends.extend(-np.inf, more)
        np.minimum(begins.values[block:], np.min(begin), out=begins.values[block:])
        np.maximum(ends.values[block:], np.max(end), out=ends.values[block:])

    def _reach(self, slots: int) -> None:
        more = slots - self.slots
        if more > 0:
            self.slots = slots
            self._request = np.append(self._request, np.full(more, -1, np.int32))
            self._shade = np.append(self._shade, np.zeros(more, np.uint8))
            self._step = np.append(self._step, np.full(more, -9))
            self._run = np.append(self._run, np.zeros(more, np.int64))
            self._until = np.append(self._until, np.zeros(more))


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
