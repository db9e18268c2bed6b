"""One lane of a race as it is shown."""

from enum import StrEnum
from statistics import median

from PySide6.QtCore import QObject, Signal

from app.compare.words import sentence_of, title_of
from app.language import tr
from app.playback.player import Playback, span_of
from app.playback.scope import Scope
from app.session.loading.progress import LoadStatus
from engine import Lane, Trace


class LaneState(StrEnum):
    WAITING = "waiting"
    LOADING = "loading"
    STARTING = "getting ready"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class LaneShow(QObject):
    """One lane of the race as it is shown: its state, its finished repeats, and one trace up to the clock."""

    changed = Signal()  # state, error, load or span

    def __init__(self, index: int, lane: Lane, name: str, total: int) -> None:
        super().__init__()
        self.index, self.lane, self.name, self.total = index, lane, name, total
        self.title, self.sentence = title_of(lane), sentence_of(lane)
        self.playback = Playback(self)
        self.scope = Scope(self)  # the same trace, at the race's moment
        self.playback.trace_changed.connect(lambda: self.scope.show(self.playback.trace))
        self.state = LaneState.WAITING
        self.error = ""
        self.load: LoadStatus | None = None
        self.repeat = 0
        self.traces: dict[int, Trace] = {}  # finished repeats
        self.span = 0.0  # seconds of the trace on show, once it is finished
        self.disturbance = ""  # what of its figures is not to be trusted

    def set_state(self, state: LaneState, error: str = "") -> None:
        self.state, self.error = state, error
        self.changed.emit()

    @property
    def spread(self) -> str:
        """ "median of 3 runs, ±6 %"; "" for one run."""
        spans = sorted(map(span_of, self.traces.values()))
        if len(spans) < 2:
            return ""
        half = 50 * (spans[-1] - spans[0]) / median(spans)
        return tr("median of {runs} runs, ±{half:.0f} %", runs=len(spans), half=half)

    def finish(self, repeat: int, trace: Trace) -> None:
        self.traces[repeat] = trace
        self.span = span_of(trace)
        self.set_state(LaneState.DONE)

    def settle(self) -> None:
        """Shows the repeat of median length."""
        if not self.traces:
            return
        spans = sorted(self.traces.values(), key=span_of)
        trace = spans[(len(spans) - 1) // 2]
        if trace is not self.playback.trace:
            self.playback.show(trace)
        self.span = span_of(trace)
        self.set_state(LaneState.DONE)
