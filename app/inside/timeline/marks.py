"""What happened to requests, on the timeline's clock: submits, first tokens, prefix hits, preemptions, ends and stalls.

A stall is a gap between two emissions of one sample that is longer than a threshold: a person's, or four times the
median gap and at least 50 ms. No Qt in here.
"""

from collections import Counter
from enum import IntEnum

import numpy as np

from app.inside.columns import Columns, Numbers, whole
from app.language import tr
from app.words import duration
from engine.trace import Array, Ended, FinishReason, Kind, Steered, Step, Submitted, SwapEvent

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
    FROM_HOST = 3
    SWAPPED_IN = 4
    SUBMITTED = 5
    PREEMPTED = 6
    SWAPPED_OUT = 7
    BUDGET_SET = 8
    CANCELLED = 9
    ERROR = 10


MARK_WORDS = {
    Mark.SUBMITTED: tr("submitted"),
    Mark.FIRST_TOKEN: tr("first token"),
    Mark.PREFIX_HIT: tr("prefix hit"),
    Mark.FROM_HOST: tr("prefix from the host"),
    Mark.PREEMPTED: tr("preempted"),
    Mark.SWAPPED_OUT: tr("swapped out"),
    Mark.SWAPPED_IN: tr("swapped in"),
    Mark.BUDGET_SET: tr("budget set"),
    Mark.CANCELLED: tr("cancelled"),
    Mark.ERROR: tr("error"),
    Mark.FINISHED: tr("finished"),
}
_OF_REASON = {FinishReason.CANCELLED: Mark.CANCELLED, FinishReason.ERROR: Mark.ERROR}


class Marks(Columns):
    """In the order of their records. `slot` is -1 for what holds none; `count` is how many tokens a prefix hit saved
    (FROM_HOST: where any of them came back from there), how many blocks were swapped in, and of a budget, whose request
    is -1, its place in `TimelineMarks.budgets`; `latest` is the latest time so far, since marks are told a little out
    of order."""

    kind, time, slot = Numbers(np.uint8), Numbers(np.float64), Numbers(np.int32)
    request, count, latest = Numbers(np.int32), Numbers(np.int32), Numbers(np.float64)

    @property
    def queued(self) -> Array:
        """Which stand in the queue, and not on a slot's bar."""
        return np.asarray((self.kind == Mark.SUBMITTED) | (self.slot < 0))


class Stalls(Columns):
    """Gaps in order of their ends: `shown` is where the request has held `slot` since, at or after `begin`."""

    begin, end, shown = Numbers(np.float64), Numbers(np.float64), Numbers(np.float64)
    slot, request = Numbers(np.int32), Numbers(np.int32)


class _Waits(Columns):
    """Seconds between two moments of which the later one is told, in order, and how many of one step were so long:
    most rows of a step waited alike."""

    time, seconds, count = Numbers(np.float64), Numbers(np.float32), Numbers(np.int32)

    def between(self, begin: float, end: float) -> Array:
        """The seconds of those that were over in `(begin, end]`."""
        first, last = np.searchsorted(self.time, (begin, end), "right")
        return np.repeat(self.seconds[first:last], self.count[first:last])


class _Slots(Columns):
    """Which sample holds a slot, since when, and when it last emitted."""

    key, since, last = Numbers(np.int64), Numbers(np.float64), Numbers(np.float64)


class TimelineMarks:
    """The marks and the longer gaps of a trace. Costs O(rows) a step, and keeps O(requests + stalls) and
    some 16 bytes a step."""

    def __init__(self) -> None:
        self.chosen: float | None = None
        self.clear()

    def clear(self, threshold: float | None = None) -> None:
        """Forgets everything: another trace begins, or the same again. `threshold`: seconds from which on a gap is a
        stall; None: four times the median."""
        self.chosen = threshold
        self._floor, self._steps = (LEAST if threshold is None else threshold), 0
        self._highest = self._floor
        self._marks, self._stalls, self._slots = Marks(), Stalls(), _Slots()
        self._late = 0.0
        self._kinds = [0] * len(Mark)
        self._longest = 0.0
        self._bins = np.zeros(FINE * _OCTAVES, np.int64)
        self._submitted: dict[int, float] = {}  # when, of requests that have no token yet
        self._gaps, self._first = _Waits(), _Waits()  # between tokens, and until a request's first one
        self._returning: dict[int, int] = {}  # samples that are swapped in and have no row yet: how many blocks
        self._found: set[int] = set()  # requests whose prefix came back from the host, and that have no row yet
        self._budgets: list[Steered] = []
        self._away: dict[int, float] = {}  # the last emission of samples that hold no slot

    # -- what is told ---------------------------------------------------------------------------------------------

    def submit(self, record: Submitted, origin: float) -> None:
        self._submitted[record.request] = record.time - origin
        self._mark(Mark.SUBMITTED, record.time - origin, -1, record.request)

    def steered(self, record: Steered, origin: float) -> None:
        """A person set what a step may compute."""
        self._mark(Mark.BUDGET_SET, record.time - origin, -1, -1, len(self._budgets))
        self._budgets.append(record)

    def step(self, step: Step, begin: float, end: float, origin: float) -> None:
        """The next step; `begin` and `end` are those that the slots show, seconds after `origin`."""
        self._steps += 1
        if self.chosen is None and self._steps % AGAIN == 0:
            self._floor = max(LEAST, KEPT_MEDIANS * self.median)
            self._highest = max(self._highest, self._floor)
        if len(step.preempted):
            self._preempt(step, begin)
        self._found.update(step.found_below.tolist())
        back = step.swap_event == SwapEvent.IN
        if back.any():
            self._returning |= Counter(_keys(step.swap_request[back], step.swap_branch[back]).tolist())
        rows = np.flatnonzero(step.slot >= 0)
        if not len(rows):
            return
        slot, key = step.slot[rows], _keys(step.request[rows], step.branch[rows])
        self._slots.grow_to(int(slot.max()) + 1, -1, 0.0, np.nan)
        for i in np.flatnonzero((self._slots.key[slot] != key) & (step.kind[rows] != Kind.HELD)).tolist():
            self._join(int(slot[i]), int(key[i]), begin)
        if self._returning:
            for i in np.flatnonzero(np.isin(key, list(self._returning))).tolist():
                blocks = self._returning.pop(int(key[i]))
                self._mark(Mark.SWAPPED_IN, begin, int(slot[i]), int(key[i]) >> BRANCH_BITS, blocks)
        if len(step.reused):
            for row in np.flatnonzero(step.reused > 0).tolist():
                request = int(step.request[row])
                kind = Mark.FROM_HOST if request in self._found else Mark.PREFIX_HIT
                self._found.discard(request)
                self._mark(kind, begin, int(step.slot[row]), request, int(step.reused[row]))
        if len(step.token_row):
            told = np.unique(step.token_row)
            told = told[step.slot[told] >= 0]
            self._emit(step.slot[told], step.request[told], end, step.ended - origin)

    def end(self, record: Ended, origin: float) -> None:
        key = record.request << BRANCH_BITS | record.branch
        slot, time = self._slot_of(key), record.time - origin
        if len(record.token):
            if slot >= 0:
                self._emit(np.array([slot]), np.array([record.request]), time, time)
            else:
                self._away[key] = time
        self._mark(_OF_REASON.get(record.reason, Mark.FINISHED), time, slot, record.request)
        self._away.pop(key, None)
        self._returning.pop(key, None)
        self._found.discard(record.request)
        if slot >= 0:
            self._slots.last[slot] = np.nan

    # -- what is asked --------------------------------------------------------------------------------------------

    @property
    def kinds(self) -> list[Mark]:
        """Which kinds there are so far, in the order of a request's life."""
        return [kind for kind in MARK_WORDS if self._kinds[kind]]

    @property
    def budgets(self) -> list[str]:
        """Those that a person set, in words."""
        return [_budget_words(record) for record in self._budgets]

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
        return max(LEAST, MEDIANS * self.median) if self.chosen is None else self.chosen

    def knows(self, threshold: float | None) -> bool:
        """Whether all gaps were kept that are longer than a threshold; None: than the one by the median."""
        return self.chosen is threshold is None or (threshold is not None and threshold >= self._highest)

    def waits(self, begin: float, end: float) -> tuple[Array, Array]:
        """The TTFTs and the gaps between tokens that were over in `(begin, end]`, in seconds."""
        return self._first.between(begin, end), self._gaps.between(begin, end)

    def marks(self, begin: float = -np.inf, end: float = np.inf) -> Marks:
        """Those in `[begin, end)`."""
        first = int(np.searchsorted(self._marks.latest, begin))
        last = int(np.searchsorted(self._marks.latest, end + self._late, "right"))
        near = self._marks.where(slice(first, last))
        return near.where((near.time >= begin) & (near.time < end))

    def stalls(self, begin: float = -np.inf, end: float = np.inf) -> Stalls:
        """Those that overlap `[begin, end)`."""
        first = int(np.searchsorted(self._stalls.end, begin, "right"))
        last = int(np.searchsorted(self._stalls.end, end + self._longest, "right"))
        near = self._stalls.where(slice(first, last))
        return near.where((near.end - near.begin > self.threshold) & (near.shown < end))

    # -- feeding --------------------------------------------------------------------------------------------------

    def _mark(self, kind: Mark, time: float, slot: int, request: int, count: int = 0) -> None:
        self._kinds[kind] += 1
        latest = max(time, float(self._marks.latest[-1])) if len(self._marks) else time
        self._late = max(self._late, latest - time)
        self._marks.append(kind, time, slot, request, count, latest)

    def _preempt(self, step: Step, begin: float) -> None:
        keys = _keys(step.preempted, whole(step.preempted_branch, len(step.preempted)))
        swapped = {request << BRANCH_BITS | branch for request, branch in step.swapped_out}
        for key, request in zip(keys.tolist(), step.preempted.tolist()):
            slot = self._slot_of(key)
            self._leave(slot)
            self._returning.pop(key, None)
            self._mark(Mark.SWAPPED_OUT if key in swapped else Mark.PREEMPTED, begin, slot, request)

    def _slot_of(self, key: int) -> int:
        """Where a sample is; -1 where it holds no slot."""
        held = np.flatnonzero(self._slots.key == key)
        return int(held[0]) if len(held) else -1

    def _leave(self, slot: int) -> None:
        """The sample of this slot, if any, has it no longer, and may go on elsewhere."""
        if slot < 0:
            return
        if not np.isnan(self._slots.last[slot]):
            self._away[int(self._slots.key[slot])] = float(self._slots.last[slot])
        self._slots.key[slot], self._slots.last[slot] = -1, np.nan

    def _join(self, slot: int, key: int, begin: float) -> None:
        self._leave(self._slot_of(key))
        self._leave(slot)
        self._slots.key[slot], self._slots.since[slot] = key, begin
        self._slots.last[slot] = self._away.pop(key, np.nan)

    def _emit(self, slot: Array, request: Array, end: float, time: float) -> None:
        """These slots emitted at `time`, which the slots show as `end`."""
        last = self._slots.last[slot]
        fresh = np.isnan(last)
        for i in np.flatnonzero(fresh).tolist():
            self._mark(Mark.FIRST_TOKEN, end, int(slot[i]), int(request[i]))
            submitted = self._submitted.pop(int(request[i]), None)
            if submitted is not None:
                self._first.append(end, time - submitted, 1)
        gaps = time - last[~fresh]
        if len(gaps):
            each, count = np.unique(gaps, return_counts=True)
            self._gaps.extend(len(each), end, each, count)
            bins = np.floor(np.log2(np.maximum(gaps, _SHORTEST) / _SHORTEST) * FINE).astype(np.int64)
            np.add.at(self._bins, np.minimum(bins, len(self._bins) - 1), 1)
            long = np.flatnonzero(~fresh)[gaps > self._floor]
            if len(long):
                self._longest = max(self._longest, float(gaps.max()))
                rows = slot[long]
                shown = np.maximum(last[long], self._slots.since[rows])
                self._stalls.extend(len(long), last[long], time, shown, rows, request[long])
        self._slots.last[slot] = time


def _keys(request: Array, branch: Array) -> Array:
    """One number for each request's sample."""
    return np.asarray(request.astype(np.int64) << BRANCH_BITS | branch.astype(np.int64))


def _budget_words(record: Steered) -> str:
    words = tr(
        "{tokens:,} tokens a step, {share:.0%} of it for prompts, {running:,} may run",
        tokens=record.token_budget,
        share=record.prefill_share,
        running=record.max_running,
    )
    if not record.target_itl:
        return words
    return tr("{budget}, gaps within {target}", budget=words, target=duration(record.target_itl))
