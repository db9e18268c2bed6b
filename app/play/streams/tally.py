"""How many streams ran, waited and were done at any moment. No Qt in here.

A stream is one sample of a request; a step costs O(its rows), a moment O(log of what there was).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from engine.trace import Column, Ended, Record, Step, Submitted


@dataclass(frozen=True, slots=True)
class Tally:
    """`requests` had been submitted; of their streams so many ran, waited and were done. `newest` is the latest
    request that a step had computed, -1 before any."""

    requests: int
    running: int
    waiting: int
    done: int
    newest: int


class StreamTally:
    """Fed with a trace's records in order."""

    def __init__(self) -> None:
        self.ids: list[int] = []  # requests in order of submission
        self._submitted, self._streams = Column(np.float64), Column(np.int64)
        self._ended = Column(np.float64)
        self._steps, self._running, self._newest = Column(np.float64), Column(np.int32), Column(np.int64)

    def feed(self, records: Sequence[Record]) -> None:
        for record in records:
            match record:
                case Step():
                    newest = int(record.request.max()) if record.rows else -1
                    if self._newest.count:
                        newest = max(newest, int(self._newest.values[-1]))
                    self._steps.append(_later(self._steps, record.ended))
                    self._running.append(record.running)
                    self._newest.append(newest)
                case Submitted():
                    self.ids.append(record.request)
                    streams = int(self._streams.values[-1]) if self._streams.count else 0
                    self._submitted.append(_later(self._submitted, record.time))
                    self._streams.append(streams + record.params.n)
                case Ended():
                    self._ended.append(_later(self._ended, record.time))

    def at(self, moment: float = inf) -> Tally:
        """As things stood at a moment; infinite: as they stand."""
        requests, done, step = (
            int(np.searchsorted(column.values, moment, "right"))
            for column in (self._submitted, self._ended, self._steps)
        )
        streams = int(self._streams.values[requests - 1]) if requests else 0
        running = min(int(self._running.values[step - 1]), streams - done) if step else 0
        newest = int(self._newest.values[step - 1]) if step else -1
        return Tally(requests, running, streams - done - running, done, newest)


def _later(column: Column, time: float) -> float:
    """A time that is not before the last one: what a search needs."""
    return max(time, float(column.values[-1])) if column.count else time
