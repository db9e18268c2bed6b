"""How many samples wait, run and are over at any moment: the one count that every view tells."""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from engine.trace.records import Ended, FinishReason, Kind, Record, Step, Submitted

_BITS = 8  # of a sample's key: which of its request's it is
_WIDTH = 7  # numbers a tally


class Tally(NamedTuple):
    """`requests` were submitted. Of their samples so many hold a slot (`running`) or do not (`waiting`), or ended: by
    themselves or at their limit (`finished`), `cancelled`, or with an error (`failed`). `newest` is the latest request
    that a step had computed, -1 before any."""

    requests: int = 0
    waiting: int = 0
    running: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    newest: int = -1

    @property
    def over(self) -> int:
        return self.finished + self.cancelled + self.failed


class TallyIndex:
    """Fed with a trace's records in order; a step costs O(its rows), a moment O(log of what there was)."""

    def __init__(self) -> None:
        self.ids: list[int] = []  # requests in order of submission
        self._samples, self._newest = 0, -1
        self._running: set[int] = set()
        self._over: set[int] = set()
        self._reasons: Counter[FinishReason] = Counter()
        self._times, self._tallies = array("d", (-inf,)), array("q", Tally())  # where it changed

    def feed(self, records: Iterable[Record]) -> None:
        for record in records:
            match record:
                case Step():
                    self._step(record)
                    self._mark(record.ended)
                case Submitted():
                    self.ids.append(record.request)
                    self._samples += record.params.branches
                    self._mark(record.time)
                case Ended():
                    key = record.request << _BITS | record.branch
                    self._running.discard(key)
                    self._over.add(key)
                    self._reasons[record.reason] += 1
                    self._mark(record.time)
                case _:
                    pass

    def _step(self, step: Step) -> None:
        branches = step.preempted_branch.tolist() or [0] * len(step.preempted)
        for request, branch in zip(step.preempted.tolist(), branches, strict=True):
            self._running.discard(request << _BITS | branch)
        if step.rows:
            keys = (step.request.astype("i8") << _BITS) | step.branch
            self._running.update(set(keys[step.kind != Kind.HELD].tolist()) - self._over)
            self._newest = max(self._newest, int(step.request.max()))

    def _mark(self, time: float) -> None:
        running, cancelled = len(self._running), self._reasons[FinishReason.CANCELLED]
        failed, over = self._reasons[FinishReason.ERROR], len(self._over)
        ends = over - cancelled - failed, cancelled, failed
        tally = array("q", (len(self.ids), self._samples - running - over, running, *ends, self._newest))
        if tally != self._tallies[-_WIDTH:]:
            self._times.append(max(time, self._times[-1]))
            self._tallies += tally

    def at(self, moment: float = inf) -> Tally:
        """As things stood at a moment; infinite: as they stand."""
        place = _WIDTH * bisect_right(self._times, moment)
        return Tally(*self._tallies[place - _WIDTH : place])
