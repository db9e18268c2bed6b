"""What each rank of a split model did in each step. No Qt in here."""

from array import array

import numpy as np

from app.words import rank_title
from engine.trace import Array, Step

KINDS = ("computing", "communicating", "waiting")
MOST = 8  # ranks that have a lane
SHADES = 4  # of micro-batches, in turn
NOTHING = np.zeros((0, len(KINDS)))


class MicroBatches:
    """When each rank of a pipeline computed which micro-batch, in order of time; `most` of one step. A step is long
    from the first of them until the last logits are there."""

    def __init__(self) -> None:
        self.most = 0
        self._begins, self._ends = ([array("d") for _ in range(MOST)] for _ in range(2))
        self._numbers, self._until = array("q"), array("q", [0])  # of all ranks alike; until the end of each step
        self._from, self._to = array("d"), array("d")  # of each step that has some

    def feed(self, step: Step, origin: float) -> None:
        count = len(step.micro_begun) // max(1, len(step.rank_bytes))
        if count:  # of few runs: the others' steps are read quickly
            begun, ended = (
                (each.astype(float) + (step.started - origin)).reshape(-1, count).tolist()
                for each in (step.micro_begun, step.micro_ended)
            )
            for kept, told in ((self._begins, begun), (self._ends, ended)):
                for array_, values in zip(kept, told):
                    array_.extend(values)
            self._from.append(begun[0][0])
            whole = step.rank_computing[0] + step.rank_communicating[0] + step.rank_waiting[0]
            self._to.append(begun[0][0] + float(whole))
            self._numbers.extend(range(count))
            self.most = max(self.most, count)
        self._until.append(len(self._numbers))

    def computed(self, rank: int, times: Array) -> Array:
        """Seconds from the beginning until `times` [...] that a rank computed micro-batches of each shade."""
        begins, ends = np.array(self._begins[rank]), np.array(self._ends[rank])
        shades, found = np.array(self._numbers) % SHADES, []
        for shade in range(SHADES):
            found.append(_covered(begins[shades == shade], ends[shades == shade], times))
        return np.stack(found)

    def stepped(self, times: Array) -> Array:
        """Likewise seconds of steps."""
        return _covered(np.array(self._from), np.array(self._to), times)

    def at(self, place: int, rank: int, time: float) -> tuple[int, int, float] | None:
        """In the step of a place, the micro-batch that a rank computed at that time, of how many, and its seconds; -1
        for none."""
        first, end = self._until[place : place + 2]
        if first == end:
            return None
        begins, ends = self._begins[rank][first:end], self._ends[rank][first:end]
        here = next((i for i, span in enumerate(zip(begins, ends)) if span[0] <= time < span[1]), -1)
        return here, end - first, ends[here] - begins[here] if here >= 0 else 0.0


def _covered(begins: Array, ends: Array, times: Array) -> Array:
    """How much of spans in order lies before `times` [...]."""
    if not len(begins):
        return np.zeros_like(times)
    lengths = ends - begins
    totals = np.concatenate(([0.0], np.cumsum(lengths)))
    place = np.maximum(np.searchsorted(begins, times, "right") - 1, 0)
    covered: Array = totals[place] + np.clip(times - begins[place], 0.0, lengths[place])
    return covered


class RankTimes:
    """All steps of a trace, in order: when they were launched and how long prepare and forward took, and running totals
    of what each rank did meanwhile. A record tells how long a rank did what, not when: a lane shows shares. Of a
    pipeline it tells when each micro-batch was computed, and all else of a step is a bubble. `apart`: the ranks are who
    decodes and its prefill worker, each with work of its own all the time."""

    def __init__(self) -> None:
        self.ranks = 0
        self.apart = False
        self.micro = MicroBatches()
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
        begin = step.started - origin + sum(seconds.get(name, 0.0) for name in ("plan", "draft") if not self.apart)
        length = seconds.get("prepare", 0.0) + seconds.get("forward", 0.0)
        self._begins.append(max(begin, self._begins[-1]) if self._begins else begin)
        self._lengths.append(max(step.ended - step.started if self.apart else length, 0.0))
        self._bytes.append(int(step.rank_bytes.sum()))
        self.micro.feed(step, origin)
        values = [*told.ravel().tolist(), *[0.0] * (len(self._spent) - told.size)]
        for totals, value in zip(self._spent, values):
            totals.append(totals[-1] + value)

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    def title(self, rank: int) -> str:
        return rank_title(rank, self.apart)

    def shares(self, times: Array) -> Array:
        """Of each column between two moments [columns, 2], the share that each rank spent: [ranks, kinds, columns]. Of
        a pipeline the first kind is as many as there are shades of micro-batches."""
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
        told = np.stack(found).reshape(self.ranks, len(KINDS), -1)
        if not self.micro.most:
            return told
        of_micro = np.stack([np.diff(self.micro.computed(rank, times))[..., 0] / long for rank in range(self.ranks)])
        stepped = np.diff(self.micro.stepped(times))[..., 0] / long
        left = np.maximum(stepped - of_micro.sum(axis=1), 0.0)
        sending = np.minimum(told[:, 1], left)
        return np.concatenate((of_micro, sending[:, None], (left - sending)[:, None]), axis=1)

    def seconds(self, place: int, rank: int) -> tuple[float, float, float]:
        """What a rank did in the step of a place, by `KINDS`."""
        totals = self._spent[len(KINDS) * rank : len(KINDS) * (rank + 1)]
        computing, communicating, waiting = (each[place + 1] - each[place] for each in totals)
        return computing, communicating, waiting

    def sent(self, place: int) -> int:
        """Bytes that all ranks sent in the step of a place."""
        return self._bytes[place]
