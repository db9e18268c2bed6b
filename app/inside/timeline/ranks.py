"""What each rank of a split model did in each step. No Qt in here."""

from array import array

import numpy as np

from engine.trace import Array, Step

KINDS = ("computing", "communicating", "waiting")
MOST = 8  # ranks that have a lane
NOTHING = np.zeros((0, len(KINDS)))


class RankTimes:
    """All steps of a trace, in order: when they were launched and how long prepare and forward took, and running totals
    of what each rank did meanwhile. A record tells how long a rank did what, not when: a lane shows shares."""

    def __init__(self) -> None:
        self.ranks = 0
        self._begins, self._lengths, self._bytes = array("d"), array("d"), array("q")
        self._spent: list[array[float]] = []

    def feed(self, step: Step, origin: float) -> None:
        """The next step, of a trace that begins at `origin`."""
        told = NOTHING
        if len(step.rank_bytes):  # of few runs: the others' steps are read quickly
            told = np.stack([getattr(step, f"rank_{kind}") for kind in KINDS], axis=1)[:MOST]
        if len(told) > self.ranks:
            more = range(len(KINDS) * (len(told) - self.ranks))
            self._spent += [array("d", [0.0] * (len(self._begins) + 1)) for _ in more]
            self.ranks = len(told)
        seconds = step.seconds
        begin = step.started - origin + sum(seconds.get(name, 0.0) for name in ("plan", "draft"))
        self._begins.append(max(begin, self._begins[-1]) if self._begins else begin)
        self._lengths.append(max(seconds.get("prepare", 0.0) + seconds.get("forward", 0.0), 0.0))
        self._bytes.append(int(step.rank_bytes.sum()))
        values = [*told.ravel().tolist(), *[0.0] * (len(self._spent) - told.size)]
        for totals, value in zip(self._spent, values):
            totals.append(totals[-1] + value)

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    def shares(self, times: Array) -> Array:
        """Of each column between two moments [columns, 2], the share that each rank spent: [ranks, kinds, columns]."""
        if not self.ranks:
            return np.zeros((0, len(KINDS), len(times)))
        begins, lengths = np.array(self._begins), np.array(self._lengths)
        place = np.maximum(np.searchsorted(begins, times, "right") - 1, 0)
        part = np.clip(times - begins[place], 0.0, lengths[place]) / np.maximum(lengths[place], 1e-12)
        long = np.maximum(np.diff(times)[:, 0], 1e-12)
        found = []
        for each in self._spent:
            totals = np.array(each)
            until = totals[place] + part * (totals[place + 1] - totals[place])
            found.append(np.diff(until)[:, 0] / long)
        return np.stack(found).reshape(self.ranks, len(KINDS), -1)

    def seconds(self, place: int, rank: int) -> tuple[float, float, float]:
        """What a rank did in the step of a place, by `KINDS`."""
        totals = self._spent[len(KINDS) * rank : len(KINDS) * (rank + 1)]
        computing, communicating, waiting = (each[place + 1] - each[place] for each in totals)
        return computing, communicating, waiting

    def sent(self, place: int) -> int:
        """Bytes that all ranks sent in the step of a place."""
        return self._bytes[place]
