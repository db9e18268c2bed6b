"""One trace as it stood at a moment, told to the panels in batches, as much at a time as a frame allows.

Going back begins again from the start. A frame costs O(what is new), however long the trace is.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from math import inf
from time import perf_counter

from PySide6.QtCore import QObject, Signal

from engine import Trace
from engine.trace import Ended, Record, RequestIndex, RequestView, Step, TallyIndex

CHUNK = 8  # records between looks at the clock


def span_of(trace: Trace) -> float:
    """Seconds from a trace's first submission to its last step or end."""
    return max(0.0, trace.end - (trace.origin or 0.0))


def touched_by(records: Iterable[Record]) -> set[int]:
    """The requests that have new words or another state."""
    touched: set[int] = set()
    for record in records:
        if isinstance(record, Step):
            touched.update(record.request.tolist())
            touched.update(record.preempted.tolist())
            touched.update(record.refused.tolist())
        elif isinstance(record, Ended):
            touched.add(record.request)
    return touched


class Playback(QObject):
    """Tells a trace's records twice: as they are recorded, and as they are due at the moment on show.

    The moment counts from the trace's first submission, which was at `origin`; it is infinite for a trace that is
    shown as it grows. `requests` and `tally` know what was due, never more.
    """

    trace_changed = Signal()  # another trace: forget everything
    recorded = Signal(object)  # list[Record] of the trace, whatever the moment
    rewound = Signal()  # what was due is told again from the start
    arrived = Signal(object)  # list[Record] that are due now; `requests` knows them

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.trace = Trace()
        self.moment = inf
        self.origin: float | None = None
        self.due = 0  # records told as due
        self._known = 0
        self.index, self.tally = RequestIndex(), TallyIndex()

    @property
    def requests(self) -> Mapping[int, RequestView]:
        return self.index.requests

    @property
    def caught_up(self) -> bool:
        """Whether everything up to the moment has been told."""
        return self._known >= len(self.trace.records) and self.due >= self._end()

    def show(self, trace: Trace) -> None:
        """This trace as it grows, from its beginning; all of one that has an index, at once."""
        self.trace, self.moment, self.origin = trace, inf, None
        self._known = 0
        self.trace_changed.emit()
        self._rewind()
        if trace.known:
            self.index, self.tally, self.origin = trace.known["requests"], trace.known["tally"], trace.origin
            self.due = self._known = len(trace.records)

    def seek(self, moment: float) -> None:
        """Shows the trace as it was then, once `advance` has come so far."""
        back = moment < self.moment
        self.moment = moment
        if back and self.due > self._end():
            self._rewind()

    def advance(self, deadline: float) -> None:
        """Tells what is new until the clock (`perf_counter`) passes `deadline`, but a little in any case."""
        records = self.trace.records
        if self.origin is None:
            self.origin = self.trace.origin
        while self._known < len(records):
            batch = records[self._known : self._known + CHUNK]
            self._known += len(batch)
            self.recorded.emit(batch)
            if perf_counter() > deadline:
                break
        due: list[Record] = []
        end, feed = self._end(), self.index.feed
        while self.due < end:
            batch = records[self.due : min(end, self.due + CHUNK)]
            for record in batch:
                feed(record)
            self.tally.feed(batch)
            due += batch
            self.due += len(batch)
            if perf_counter() > deadline:
                break
        if due:
            self.arrived.emit(due)

    def _rewind(self) -> None:
        self.due = 0
        self.index, self.tally = RequestIndex(), TallyIndex()
        self.rewound.emit()

    def _end(self) -> int:
        """Where the records end that are due."""
        records = self.trace.records
        if self.moment == inf or self.origin is None:
            return len(records)
        return bisect_right(records.times, self.moment + self.origin)
