"""Comparing a model's quantizations with the original: the measuring, how far it is, and what was measured."""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from PySide6.QtCore import QObject, Qt, Signal

from app.language import tr
from app.quality.subject import Subject, examine
from app.session.loading.progress import LoadStatus
from app.session.long_work import LongWork, Outcome
from app.session.session import LEASED_WORDS, Session, SessionState
from app.words import left_words, model_words
from engine import ModelSpec, measure_quality
from engine.quality import READING, QualityReport


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured: the ways' keys, a text's name or file (None: the one that suits the model)."""

    ways: tuple[str, ...]
    text: str | None
    tokens: int


class _Progress:
    """The share of the whole, from stages that begin with what is measured and a colon: all are taken to go through the
    stages of the first one, each as long as another."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._first: list[str] = []
        self._whats: list[str] = []

    @property
    def begun(self) -> int:
        """How many are under way or done."""
        return len(self._whats)

    def share(self, status: LoadStatus) -> float:
        what, _, stage = status.stage.partition(": ")
        if what not in self._whats:
            self._whats.append(what)
        within = 0.0
        if len(self._whats) > 1 and stage in self._first:
            part = status.done / status.total if status.total > 0 else 0.0
            within = (self._first.index(stage) + part) / len(self._first)
        elif len(self._whats) == 1 and stage not in self._first:
            self._first.append(stage)  # how many there are is not known yet
        return min(1.0, (len(self._whats) - 1 + within) / self._count)


class QualitySession(QObject):
    """One model on show, one measurement at a time. Reports are kept for as long as the session lasts."""

    subject_changed = Signal()
    phase_changed = Signal()
    progressed = Signal(str, float)  # in words, and the share of the whole
    report_changed = Signal()
    told = Signal(str, str)  # what came of it, in words, and its level: error, warning, note
    _came = Signal(object)  # QualityReport, from the thread that measures

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.subject: Subject | None = None
        self.looking: ModelSpec | None = None  # the model whose files are being read
        self._work = LongWork(session, self)
        self._work.progressed.connect(self._on_progress)
        self._work.ended.connect(self._on_ended)
        session.measuring = self
        self._reports: dict[tuple[str, str | None], list[QualityReport | None]] = defaultdict(list)  # of each model
        self.measured: Subject | None = None  # what is being measured; it need not be what is on show
        self._part: QualityReport | None = None  # what is measured so far
        self._came.connect(self._on_came, Qt.ConnectionType.QueuedConnection)
        self._progress = _Progress(1)
        self._share = 0.0
        self._begun = 0.0

    # -- the model on show ----------------------------------------------------------------------------------------

    def forget(self) -> None:
        """No model is on show."""
        self._put(None)

    def show(self, spec: ModelSpec, original: ModelSpec | None = None) -> None:
        """Puts a model on show; `subject_changed` follows when its files are read."""
        self.looking = spec
        self._session.start(self._examine(spec, original))

    async def _examine(self, spec: ModelSpec, original: ModelSpec | None) -> None:
        subject = await self._session.off_thread(lambda: examine(spec, original))
        if spec is self.looking and not self._session.closing:
            self._put(subject)

    def _put(self, subject: Subject | None) -> None:
        self.looking, self.subject = None, subject
        self.subject_changed.emit()
        self.report_changed.emit()

    @property
    def _kept(self) -> list[QualityReport | None]:
        """Those of the model on show, the present one last: None where it was cleared."""
        return self._reports[self.subject.key] if self.subject is not None else []

    @property
    def report(self) -> QualityReport | None:
        """Of the model on show; while it is measured, as far as that is."""
        if self._part is not None and self._measures_shown:
            return self._part
        return self._kept[-1] if self._kept else None

    @property
    def _measures_shown(self) -> bool:
        one, other = self.measured, self.subject
        return one is not None and other is not None and one.key == other.key

    @property
    def can_undo(self) -> bool:
        return len(self._kept) > 1

    def clear(self) -> None:
        """Takes the report off the model; `undo` brings it back."""
        if self.report is not None:
            self._kept.append(None)
            self.report_changed.emit()

    def undo(self) -> None:
        """The report that was there before the last one was made or cleared."""
        if self.can_undo:
            self._kept.pop()
            self.report_changed.emit()

    # -- the measuring --------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._work.running

    @property
    def ending(self) -> bool:
        return self._work.ending

    def refusal(self, plan: Plan) -> str:
        """Why this cannot be measured now; "" where it can."""
        subject = self.subject
        if subject is None:
            return tr("Choose a model first.")
        if subject.problem:
            return subject.problem
        if subject.original is None:
            return tr("It is not known which model this checkpoint was made of. Choose the original.")
        if self._session.state is SessionState.LEASED:
            return LEASED_WORDS
        if not plan.ways:
            return tr("Tick what is to be measured.")
        return ""

    def start(self, plan: Plan) -> None:
        """Begins; `told` says why nothing began, or what came of it."""
        subject, why = self.subject, self.refusal(plan)
        if self.running:
            return
        if why or subject is None or subject.original is None:
            self.told.emit(why, "error")
            return
        ways = [way for way in subject.ways if way.key in plan.ways]
        specs = [way.spec for way in ways if not way.cache]
        caches = [way.cache for way in ways if way.cache]
        self.measured, self._progress = subject, _Progress(1 + len(ways))
        self._share, self._begun, self._part = 0.0, perf_counter(), None
        on = partial(measure_quality, text=plan.text, tokens=plan.tokens)
        work = partial(on, specs, subject.original, caches=caches)
        self._work.start(lambda report, cancelled: work(report=report, came=self._came.emit, cancelled=cancelled))
        self.phase_changed.emit()
        self.progressed.emit(tr("starting a process that loads the models"), 0.0)

    def cancel(self) -> None:
        if self.running:
            self._work.cancel()
            self.phase_changed.emit()

    def close(self) -> None:
        """The window closes."""
        self._work.close()

    def _on_progress(self, status: LoadStatus) -> None:
        self._share = max(self._share, self._progress.share(status))
        words = status.stage
        if status.total > 0 and words.endswith(READING):
            words = tr("{stage}, {done:,} of {all:,} tokens", stage=words, done=status.done, all=status.total)
        if self._progress.begun > 1:
            left = (perf_counter() - self._begun) * (1 - self._share) / self._share
            words = tr("{stage}  ·  ~{time} left", stage=words, time=left_words(left))
        self.progressed.emit(words, self._share)

    def _on_came(self, part: QualityReport) -> None:
        if self.running:
            self._part = part
            self.report_changed.emit()

    def _on_ended(self, outcome: Outcome) -> None:
        """What was measured is kept, however it ended."""
        on_show = self._measures_shown
        subject, self.measured = self.measured, None
        found, self._part = outcome.result or self._part, None
        self.phase_changed.emit()
        if subject is None:
            return
        if found is not None:
            kept = self._reports[subject.key]
            kept[:] = [*(report for report in kept if report is not None), found]
            self.report_changed.emit()
        if outcome.cancelled and found is not None:
            self.told.emit(tr("Cancelled: what is measured so far is kept."), "note")
        elif outcome.cancelled:
            self.told.emit(tr("Cancelled: nothing was measured yet. What was measured before stays."), "note")
        elif outcome.error:
            self.told.emit(outcome.error, "error")
        else:
            words = tr("{model} is measured.", model=model_words(subject.spec.source))
            self.told.emit("" if on_show else words, "note")
