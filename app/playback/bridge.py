"""From the trace to the panels: at most once a frame, whatever arrived, in one signal.

A frame costs O(what is new): the index of requests takes as many records as fit in the frame's budget and leaves the
rest to the next frame, so the window stays quick however many tokens a second come in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from time import perf_counter

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.playback.scope import Scope
from engine import Trace
from engine.trace import Ended, Header, Record, RequestIndex, RequestView, Step, Submitted

FRAMES_PER_SECOND = 30
BUDGET = 0.008
RATE_WINDOW, RATE_PAUSE = 1.0, 0.25


class Bridge(QObject):
    """Shows one trace at a time. Connect to `records_arrived`; read requests from `requests`, or from `shown` as they
    stood at the scope's moment, never from the trace."""

    trace_reset = Signal(object)  # Trace: forget everything shown, this one starts
    records_arrived = Signal(object)  # list[Record], new since the last frame; `requests` already knows them
    busy_changed = Signal(bool)  # whether any request of the trace is open

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.trace = Trace()
        self.scope = Scope(self)  # the same trace, at the moment that the panels show
        self.position = 0
        self.open: set[int] = set()
        self._index = RequestIndex()
        self._next: Trace | None = None
        self._next_position = 0
        self._tokens: deque[tuple[float, int]] = deque()
        self._tokens_sum = 0
        self._arrived = 0.0
        self._rate = (-1, 0.0)  # the quarter second it was taken in, and what it was
        self._ticks: deque[float] = deque()
        self._busy = False
        self._timer = QTimer(self, interval=1000 // FRAMES_PER_SECOND, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._on_frame)
        self._timer.start()

    @property
    def requests(self) -> dict[int, RequestView]:
        """Every request shown so far, by id, in order of submission."""
        return self._index.requests

    @property
    def shown(self) -> Mapping[int, RequestView]:
        """The requests as they stood at the scope's moment, those submitted by then: `requests` while it follows."""
        return self.requests if self.scope.following else self._index.at(self.scope.moment)

    @property
    def header(self) -> Header | None:
        return self.trace.header if self.trace.records else None

    @property
    def busy(self) -> bool:
        return bool(self.open)

    @property
    def behind(self) -> int:
        """Records that are there and not yet shown."""
        return len(self.trace.records) - self.position

    @property
    def frames_per_second(self) -> float:
        """Frames in the last second, as the window managed them."""
        now = perf_counter()
        while self._ticks and self._ticks[0] < now - 1.0:
            self._ticks.popleft()
        return float(len(self._ticks))

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
        if keep_until_used and self.requests and trace is not self.trace:
            self._next, self._next_position = trace, 0
            return
        self._reset(trace)

    def stop(self) -> None:
        """No more frames: the window closes."""
        self._timer.stop()
        self.scope.stop()

    def _reset(self, trace: Trace) -> None:
        self.trace, self.position, self._next = trace, 0, None
        self._index = RequestIndex()
        self.open.clear()
        self._tokens.clear()
        self._tokens_sum = 0
        self.scope.show(trace)
        self.trace_reset.emit(trace)
        self._tell_busy()

    def _on_frame(self) -> None:
        started = perf_counter()
        self._ticks.append(started)
        while self._ticks[0] < started - 1.0:
            self._ticks.popleft()
        self._drain(started)
        if self._next is not None and not self.behind and self._used(self._next):
            self._reset(self._next)
            self._drain(started)

    def _used(self, trace: Trace) -> bool:
        begin, self._next_position = self._next_position, len(trace.records)
        return any(isinstance(record, Submitted) for record in trace.records[begin : self._next_position])

    def _drain(self, started: float) -> None:
        records = self.trace.records
        begin = at = self.position
        end = len(records)
        feed = self._index.feed
        while at < end:
            record = records[at]
            feed(record)
            self._note(record)
            at += 1
            if perf_counter() - started > BUDGET:
                break
        if at > begin:
            self.position = at
            batch: list[Record] = records[begin:at]
            self.records_arrived.emit(batch)
            self._tell_busy()

    def _note(self, record: Record) -> None:
        match record:
            case Step():
                tokens = len(record.token)
                self._arrived = perf_counter()
                self._tokens.append((record.ended, tokens))
                self._tokens_sum += tokens
                while self._tokens[0][0] < record.ended - RATE_WINDOW:
                    self._tokens_sum -= self._tokens.popleft()[1]
            case Submitted():
                self.open.add(record.request)
            case Ended() if self.requests[record.request].ended is not None:  # with all its samples
                self.open.discard(record.request)
            case _:
                pass

    def _tell_busy(self) -> None:
        if self._busy != self.busy:
            self._busy = self.busy
            self.busy_changed.emit(self._busy)
