"""When requests are there: the only time that counts where idle time, or a mean over time, is told."""

from array import array
from bisect import bisect_right

import numpy as np

from engine.trace.column import Array
from engine.trace.records import Ended, Record, Step, Submitted


class Presence:
    """The spans from a submit to the moment at which no sample waits or runs. Feed it a trace's records in order: O(1)
    each. Times are seconds of the trace; while a request is there the last span ends with the latest record.

    A step is in a span even where nobody said who it computes for.
    """

    def __init__(self) -> None:
        self._begins, self._ends = array("d"), array("d")
        self._open = 0  # samples
        self._closed = 0.0  # seconds of all spans but the last

    def feed(self, record: Record) -> None:
        match record:
            case Submitted():
                self._reach(record.time, record.time, bool(self._open))
                self._open += record.params.branches
            case Step():
                self._reach(record.started, record.ended, bool(self._open))
            case Ended():
                self._reach(record.time, record.time, True)
                self._open = max(0, self._open - 1)
            case _:
                pass

    def _reach(self, begin: float, end: float, goes_on: bool) -> None:
        """The last span goes on to `end`, or another begins."""
        if self._ends and (goes_on or begin <= self._ends[-1]):
            self._ends[-1] = max(self._ends[-1], end)
            return
        if self._ends:
            self._closed += self._ends[-1] - self._begins[-1]
        self._begins.append(begin)
        self._ends.append(max(begin, end))

    @property
    def there(self) -> bool:
        """Whether a sample waits or runs."""
        return self._open > 0

    @property
    def total(self) -> float:
        """Seconds in which requests were there so far."""
        return self._closed + (self._ends[-1] - self._begins[-1] if self._ends else 0.0)

    def seconds(self, begin: float, end: float) -> float:
        """How many of the seconds between two moments requests were there."""
        if not self._ends or end <= begin:
            return 0.0
        edges = np.stack((self._begins, self._ends), axis=1)
        passed = np.stack((np.zeros(len(edges)), np.diff(edges)[:, 0]), axis=1).ravel().cumsum()
        return float(np.diff(np.interp((begin, end), edges.ravel(), passed))[0])

    def span(self, moment: float) -> tuple[float, float]:
        """When the span at a moment began and ended, where requests are over the next one, or else the last; both the
        moment itself where there is none."""
        spans = len(self._ends)
        if not spans:
            return moment, moment
        at = min(bisect_right(self._ends, moment, 0, spans), spans - 1)
        return self._begins[at], self._ends[at]

    def gaps(self, least: float) -> tuple[Array, Array]:
        """When idle time of at least so many seconds between two spans began and ended."""
        begins, ends = np.array(self._ends[:-1], float), np.array(self._begins[1:], float)
        long = ends - begins >= least
        return begins[long], ends[long]
