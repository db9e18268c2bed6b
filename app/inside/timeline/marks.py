"""What happened to requests, on the timeline's clock: submits, first tokens, prefix hits, preemptions, ends and stalls.

A stall is a gap between two emissions of one sample that is longer than a threshold: a person's, or four times the
median gap and at least 50 ms. No Qt in here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from engine.trace import Array, Column, Ended, FinishReason, Kind, Step, Submitted

LEAST, MEDIANS = 0.05, 4.0  # the threshold while none is chosen: seconds, and times the median
KEPT_MEDIANS = 2.0  # meanwhile gaps of so many medians so far are kept: the median may still fall to half
AGAIN = 64  # steps between looks at the median
FINE = 128  # bins of gaps an octave: the median is known to half a percent
_OCTAVES = 32
BRANCH_BITS = 16
_SHORTEST = 2.0**-20


class Mark(IntEnum):
    """In order of importance: where there is room for one only, the last is drawn."""

    FINISHED = 0
    FIRST_TOKEN = 1
    PREFIX_HIT = 2
    SUBMITTED = 3
    PREEMPTED = 4
    CANCELLED = 5
    ERROR = 6


MARK_WORDS = {
    Mark.SUBMITTED: "submitted", Mark.FIRST_TOKEN: "first token", Mark.PREFIX_HIT: "prefix hit",
    Mark.PREEMPTED: "preempted", Mark.CANCELLED: "cancelled", Mark.ERROR: "error", Mark.FINISHED: "finished",
}  # fmt: skip
_OF_REASON = {FinishReason.CANCELLED: Mark.CANCELLED, FinishReason.ERROR: Mark.ERROR}


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks in columns, in the order of their records. `slot` is -1 for what holds none; `count` is how many tokens a
    prefix hit saved."""

    kind: Array
    time: Array
    slot: Array
    request: Array
    count: Array

    def __len__(self) -> int:
        return len(self.kind)

    def where(self, which: Array) -> Marks:
        """Those of which it is true."""
        return Marks(*(c[which] for c in (self.kind, self.time, self.slot, self.request, self.count)))


@dataclass(frozen=True, slots=True)
class Stalls:
    """Gaps in columns, in order of their ends: `shown` is where the request has held `slot` since, at or after
    `begin`."""

    begin: Array
    end: Array
    shown: Array
    slot: Array
    request: Array

    def __len__(self) -> int:
        return len(self.begin)

    def where(self, which: Array) -> Stalls:
        """Those of which it is true."""
        return Stalls(*(column[which] for column in (self.begin, self.end, self.shown, self.slot, self.request)))


class TimelineMarks:
    """The marks and the longer gaps of a trace. Costs O(rows) a step, and keeps O(requests + stalls)."""

    def __init__(self) -> None:
        self._chosen: float | None = None
        self.clear()

    def clear(self, threshold: float | None = None) -> None:
        """Forgets everything: another trace begins, or the same again. `threshold`: seconds from which on a gap is a
        stall; None: four times the median."""
        self._chosen = threshold
        self._floor, self._steps = (LEAST if threshold is None else threshold), 0
        self._marks = (Column(np.uint8), Column(np.float64), Column(np.int32), Column(np.int32), Column(np.int32))
        self._order = Column(np.float64)  # the latest time so far: marks are told a little out of order
        self._late = 0.0
        self._kinds = [0] * len(Mark)
        self._gaps = (
            Column(np.float64), Column(np.float64), Column(np.float64), Column(np.int32), Column(np.int32)
        )  # fmt: skip
        self._longest = 0.0
        self._bins = np.zeros(FINE * _OCTAVES, np.int64)
        # By slot: which sample holds it, since when, and when it last emitted. `_away`: the last emission of others.
        self._key = np.zeros(0, np.int64)
        self._since, self._last = np.zeros(0), np.zeros(0)
        self._away: dict[int, float] = {}

    # -- what is told ---------------------------------------------------------------------------------------------

    def submit(self, record: Submitted, origin: float) -> None:
        self._mark(Mark.SUBMITTED, record.time - origin, -1, record.request)

    def step(self, step: Step, begin: float, end: float, origin: float) -> None:
        """The next step; `begin` and `end` are those that the slots show, seconds after `origin`."""
        self._steps += 1
        if self._chosen is None and self._steps % AGAIN == 0:
            self._floor = max(LEAST, KEPT_MEDIANS * self.median)
        if len(step.preempted):
            self._preempt(step, begin)
        rows = np.flatnonzero(step.slot >= 0)
        if not len(rows):
            return
        slot, key = step.slot[rows], _keys(step.request[rows], step.branch[rows])
        self._reach(int(slot.max()) + 1)
        for i in np.flatnonzero((self._key[slot] != key) & (step.kind[rows] != Kind.HELD)).tolist():
            self._join(int(slot[i]), int(key[i]), begin)
        if len(step.reused):
            for row in np.flatnonzero(step.reused > 0).tolist():
                self._mark(Mark.PREFIX_HIT, begin, int(step.slot[row]), int(step.request[row]), int(step.reused[row]))
        if len(step.token_row):
            told = np.unique(step.token_row)
            told = told[step.slot[told] >= 0]
            self._emit(step.slot[told], step.request[told], end, step.ended - origin)

    def end(self, record: Ended, origin: float) -> None:
        key = record.request << BRANCH_BITS | record.branch
        held = np.flatnonzero(self._key == key)
        slot, time = int(held[0]) if len(held) else -1, record.time - origin
        if len(record.token):
            if slot >= 0:
                self._emit(np.array([slot]), np.array([record.request]), time, time)
            else:
                self._away[key] = time
        self._mark(_OF_REASON.get(record.reason, Mark.FINISHED), time, slot, record.request)
        self._away.pop(key, None)
        if slot >= 0:
            self._last[slot] = np.nan

    # -- what is asked --------------------------------------------------------------------------------------------

    @property
    def kinds(self) -> list[Mark]:
        """Which kinds there are so far, in the order of a request's life."""
        return [kind for kind in MARK_WORDS if self._kinds[kind]]

    @property
    def median(self) -> float:
        """The median gap between emissions so far, seconds; 0 while there is none."""
        total = np.cumsum(self._bins)
        if not total[-1]:
            return 0.0
        return float(_SHORTEST * 2 ** ((np.searchsorted(total, (total[-1] + 1) / 2) + 0.5) / FINE))

    @property
    def threshold(self) -> float:
        """Seconds: longer gaps are stalls."""
        return max(LEAST, MEDIANS * self.median) if self._chosen is None else self._chosen

    def marks(self, begin: float = -np.inf, end: float = np.inf) -> Marks:
        """Those in `[begin, end)`."""
        first = int(np.searchsorted(self._order.values, begin))
        last = int(np.searchsorted(self._order.values, end + self._late, "right"))
        columns = [column.values[first:last] for column in self._marks]
        inside = (columns[1] >= begin) & (columns[1] < end)
        return Marks(*(column[inside] for column in columns))

    def stalls(self, begin: float = -np.inf, end: float = np.inf) -> Stalls:
        """Those that overlap `[begin, end)`."""
        columns = [column.values for column in self._gaps]
        first = int(np.searchsorted(columns[1], begin, "right"))  # in order of their ends
        last = int(np.searchsorted(columns[1], end + self._longest, "right"))
        columns = [column[first:last] for column in columns]
        inside = (columns[1] - columns[0] > self.threshold) & (columns[2] < end)
        return Stalls(*(column[inside] for column in columns))

    # -- feeding --------------------------------------------------------------------------------------------------

    def _mark(self, kind: Mark, time: float, slot: int, request: int, count: int = 0) -> None:
        for column, value in zip(self._marks, (kind, time, slot, request, count)):
            column.append(value)
        self._kinds[kind] += 1
        latest = max(time, float(self._order.values[-1])) if self._order.count else time
        self._late = max(self._late, latest - time)
        self._order.append(latest)

    def _preempt(self, step: Step, begin: float) -> None:
        branches = step.preempted_branch if len(step.preempted_branch) else np.zeros(len(step.preempted), np.int64)
        for key, request in zip(_keys(step.preempted, branches).tolist(), step.preempted.tolist()):
            held = np.flatnonzero(self._key == key)
            slot = int(held[0]) if len(held) else -1
            if slot >= 0:
                self._leave(slot)
            self._mark(Mark.PREEMPTED, begin, slot, request)

    def _leave(self, slot: int) -> None:
        """The sample of this slot has it no longer, and may go on elsewhere."""
        if not np.isnan(self._last[slot]):
            self._away[int(self._key[slot])] = float(self._last[slot])
        self._key[slot], self._last[slot] = -1, np.nan

    def _join(self, slot: int, key: int, begin: float) -> None:
        elsewhere = np.flatnonzero(self._key == key)
        if len(elsewhere):
            self._leave(int(elsewhere[0]))
        if self._key[slot] >= 0:
            self._leave(slot)
        self._key[slot], self._since[slot] = key, begin
        self._last[slot] = self._away.pop(key, np.nan)

    def _emit(self, slot: Array, request: Array, end: float, time: float) -> None:
        """These slots emitted at `time`, which the slots show as `end`."""
        last = self._last[slot]
        fresh = np.isnan(last)
        for i in np.flatnonzero(fresh).tolist():
            self._mark(Mark.FIRST_TOKEN, end, int(slot[i]), int(request[i]))
        gaps = time - last[~fresh]
        if len(gaps):
            bins = np.floor(np.log2(np.maximum(gaps, _SHORTEST) / _SHORTEST) * FINE).astype(np.int64)
            np.add.at(self._bins, np.minimum(bins, len(self._bins) - 1), 1)
            long = np.flatnonzero(~fresh)[gaps > self._floor]
            if len(long):
                self._longest = max(self._longest, float(gaps.max()))
                rows = slot[long]
                shown = np.maximum(last[long], self._since[rows])
                for column, values in zip(self._gaps, (last[long], time, shown, rows, request[long])):
                    column.extend(values, len(long))
        self._last[slot] = time

    def _reach(self, slots: int) -> None:
        more = slots - len(self._key)
        if more > 0:
            self._key = np.append(self._key, np.full(more, -1, np.int64))
            self._since = np.append(self._since, np.zeros(more))
            self._last = np.append(self._last, np.full(more, np.nan))


def _keys(request: Array, branch: Array) -> Array:
    """One number for each request's sample."""
    return np.asarray(request.astype(np.int64) << BRANCH_BITS | branch.astype(np.int64))
