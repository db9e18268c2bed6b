"""From the trace to the panels: at most once a frame, whatever arrived, in one signal.

A frame costs O(what is new): the index of requests takes as many records as fit in the frame's budget and leaves the
rest to the next frame, so the window stays quick however many tokens a second come in.
"""

from collections import deque
from collections.abc import Mapping
from math import inf
from time import perf_counter

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.playback.player import Playback
from app.playback.scope import Scope
from engine import Trace
from engine.trace import Ended, Header, Metrics, Record, RequestView, Step, Submitted, TallyIndex, time_of

FRAMES_PER_SECOND = 30
BUDGET = 0.008
RATE_WINDOW, RATE_PAUSE = 1.0, 0.25


class Bridge(QObject):
    """Shows one trace at a time. Connect to `records_arrived`; read requests from `requests`, or from `shown` as they
    stood at the scope's moment, never from the trace. A run that has an index is there at once: what its records told
    is in `Trace.known`, and none of them arrives but its notices."""

    trace_reset = Signal(object)  # Trace: forget everything shown, this one starts
    records_arrived = Signal(object)  # list[Record], new since the last frame; `requests` already knows them
    busy_changed = Signal(bool)  # whether any request of the trace is open

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.trace = Trace()
        self.scope = Scope(self)  # the same trace, at the moment that the panels show
        self._playback = Playback(self)
        self._playback.arrived.connect(self._on_arrived)
        self.open: set[int] = set()
        self.begun = 0  # the record with which the latest requests began to come, when none was there
        self.last_run: Metrics | None = None  # of these, told from outside once they are over
        self._next: Trace | None = None
        self._next_position = 0
        self._tokens: deque[tuple[float, int]] = deque()
        self._tokens_sum = 0
        self._arrived = 0.0
        self._rate = (-1, 0.0)  # the quarter second it was taken in, and what it was
        self._ticks: deque[float] = deque(maxlen=4 * FRAMES_PER_SECOND)
        self._busy = False
        self._timer = QTimer(self, interval=1000 // FRAMES_PER_SECOND, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._on_frame)
        self._timer.start()

    @property
    def requests(self) -> Mapping[int, RequestView]:
        """Every request shown so far, by id, in order of submission."""
        return self._playback.requests

    @property
    def shown(self) -> Mapping[int, RequestView]:
        """The requests as they stood at the scope's moment, those submitted by then: `requests` while it follows."""
        return self.requests if self.scope.following else self._playback.index.at(self.scope.moment)

    @property
    def tally(self) -> TallyIndex:
        """How many samples waited, ran and were over at any moment."""
        return self._playback.tally

    @property
    def header(self) -> Header | None:
        return self.trace.header if self.trace.records else None

    @property
    def busy(self) -> bool:
        return bool(self.open)

    @property
    def running(self) -> bool:
        """Whether a request runs, however much of it is on show yet: what is shown anew runs no more."""
        traces = [trace for trace in (self.trace, self._next) if trace is not None]
        return any(view.ended is None for trace in traces for view in trace.requests.values())

    @property
    def over(self) -> Metrics | None:
        """The measures of the last requests, where these are over and nothing earlier is on show."""
        return self.last_run if self.scope.following and not self.busy else None

    @property
    def position(self) -> int:
        """Records that are shown."""
        return self._playback.due

    @property
    def behind(self) -> int:
        """Records that are there and not yet shown."""
        return len(self.trace.records) - self.position

    @property
    def frames_per_second(self) -> float:
        """Frames in the last second, as the window managed them."""
        since = perf_counter() - 1.0
        return float(sum(tick > since for tick in self._ticks))

    @property
    def live_rate(self) -> float:
        """Output tokens of the last second, taken anew every quarter second: no two places in the window ever show
        different ones. 0 when every request has ended, whatever else the engine still tells."""
        slot = int(perf_counter() / RATE_PAUSE)
        if self._rate[0] != slot:
            self._rate = slot, self._tokens_per_second() if self.busy else 0.0
        return self._rate[1]

    def _tokens_per_second(self) -> float:
        """Output tokens of the last second of the trace; 0 once nothing has arrived for a second."""
        if not self._tokens or perf_counter() - self._arrived > RATE_WINDOW:
            return 0.0
        span = self._tokens[-1][0] - self._tokens[0][0]
        return (self._tokens_sum - self._tokens[0][1]) / span if span > 0 else 0.0

    def show(self, trace: Trace, *, keep_until_used: bool = False) -> None:
        """Shows this trace from its beginning.

        With `keep_until_used`, requests on show stay until the new trace has one of its own: after a change of
        settings or a restart, the last texts can still be read.
        """
        if keep_until_used and self.trace.origin is not None and trace is not self.trace:
            self._next, self._next_position = trace, 0
            return
        self._reset(trace)

    def stop(self) -> None:
        """No more frames: the window closes."""
        self._timer.stop()
        self.scope.stop()

    def _reset(self, trace: Trace) -> None:
        self.trace, self._next = trace, None
        self._playback.show(trace)
        self.open.clear()
        self.begun, self.last_run = 0, None
        self._tokens.clear()
        self._tokens_sum = 0
        self.scope.show(trace)
        if trace.known:
            self.scope.take_in()
            whole = trace.known["trace"]
            self.open.update(request for request, _ in whole["open"])
            self.begun, self.last_run = whole["begun"], trace.known["last_run"]
        self.trace_reset.emit(trace)
        if trace.known:  # of its records only those that a person is told
            self.records_arrived.emit(list(trace.known["trace"]["notices"]))
        self._tell_busy()

    def _on_frame(self) -> None:
        started = perf_counter()
        self._ticks.append(started)
        self._playback.advance(started + BUDGET)
        if self._next is not None and not self.behind and self._used(self._next):
            self._reset(self._next)
            self._playback.advance(started + BUDGET)

    def _used(self, trace: Trace) -> bool:
        begin, self._next_position = self._next_position, len(trace.records)
        return any(isinstance(record, Submitted) for record in trace.records[begin : self._next_position])

    def _on_arrived(self, records: list[Record]) -> None:
        self.scope.take_in()
        for place, record in enumerate(records, self.position - len(records)):
            if isinstance(record, Submitted) and not self.open:
                self.begun = place
            self._note(record)
        self.records_arrived.emit(records)
        if records and time_of(records[0]) <= self.scope.moment < inf:  # what led to the moment on show still came in
            self.scope.moved.emit()
        self._tell_busy()

    def _note(self, record: Record) -> None:
        match record:
            case Step():
                tokens = 0 if record.standing else len(record.token)
                self._arrived = perf_counter()
                self._tokens.append((record.ended, tokens))
                self._tokens_sum += tokens
                while self._tokens[0][0] < record.ended - RATE_WINDOW:
                    self._tokens_sum -= self._tokens.popleft()[1]
            case Submitted():
                self.open.add(record.request)
                self._tell_busy()  # at once: they may be over within this frame
            case Ended() if self.requests[record.request].ended is not None:  # with all its samples
                self.open.discard(record.request)
            case _:
                pass

    def _tell_busy(self) -> None:
        if self._busy != self.busy:
            self._busy = self.busy
            self.busy_changed.emit(self._busy)
