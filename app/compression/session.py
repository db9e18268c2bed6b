"""One prompt that is compressed: scored, written anew, measured; one piece of work at a time on the loaded engine."""

from collections.abc import Callable
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.language import tr
from app.session.loading.progress import LoadStatus
from app.session.long_work import LongWork, Outcome
from app.session.session import LEASED_WORDS, Session, SessionState
from app.words import sentence
from engine import InvalidInput, ModelSpec, compare_compressed, compress
from engine.compression import Compressed, Effect, Fields, Scored, parts_of, score
from engine.config import Prompt
from engine.core import EngineFace

BUSY_WORDS = tr("Requests run, and would be measured too: stop them first.")
COUNTED_UP_TO = 1000  # of what is more, bytes are counted
Work = Callable[..., Any]  # of an engine, with `report` and `cancelled`


class CompressionSession(QObject):
    """What there is so far: `scored`, what was `written` by the model (a summary, fields), and the `effect`, which is
    that of `measured`. Newer work takes the place of what is under way."""

    changed = Signal()
    progressed = Signal(str, float)  # in words, and the share of the whole; below 0 where nobody knows
    told = Signal(str)  # why nothing came of it, in words; "" where it goes well

    def __init__(self, session: Session, prompt: Prompt) -> None:
        super().__init__(session)
        self.prompt = prompt
        self.scored: Scored | None = None
        self.written: Compressed | None = None
        self.effect: Effect | None = None
        self.measured: Prompt | None = None
        self._session = session
        self._work = LongWork(session, self)
        self._work.progressed.connect(self._on_progress)
        self._work.ended.connect(self._on_ended)
        self._take: Callable[[Any], None] = self._take_scored  # what becomes of the result of the work under way
        self._next: tuple[Work, Callable[[Any], None]] | None = None
        self._closed = False

    @property
    def running(self) -> bool:
        return self._work.running

    def score(self, unit: str, keep: tuple[str, ...], scorer: ModelSpec | None) -> None:
        """The information of its pieces."""
        self._start(partial(score, prompt=self.prompt, unit=unit, keep=keep, scorer=scorer), self._take_scored, keep)

    def write(self, method: str, ratio: float, keep: tuple[str, ...], fields: Fields | None = None) -> None:
        """A summary, or fields."""
        how = partial(compress, prompt=self.prompt, method=method, ratio=ratio, keep=keep, fields=fields)
        self._start(how, self._take_written, keep)

    def measure(self, compressed: Prompt) -> None:
        """What the compressed prompt buys and costs."""
        if self._session.busy and not self.running:
            self.told.emit(BUSY_WORDS)
            return

        def take(effect: Effect) -> None:
            self.effect, self.measured = effect, compressed

        self._start(partial(compare_compressed, original=self.prompt, compressed=compressed), take)

    def forget_written(self) -> None:
        """What the model wrote was asked for in another way."""
        if self.written is not None:
            self.written = None
            self.changed.emit()

    def cancel(self) -> None:
        self._next = None
        self._work.cancel()

    def close(self) -> None:
        """Nobody looks at it any more."""
        self._closed = True
        self.cancel()
        if not self.running:
            self.deleteLater()

    def _start(self, work: Work, take: Callable[[Any], None], keep: tuple[str, ...] | None = None) -> None:
        if keep is not None:
            try:
                parts_of(self.prompt, keep)
            except InvalidInput as error:  # nothing there is holds for it
                self.cancel()
                self.scored = self.written = None
                self.told.emit(sentence(str(error)))
                self.changed.emit()
                return
        self.told.emit("")
        if self.running:
            self._next = work, take
            self._work.cancel()
            return
        engine = self._session.live()
        if engine is None:
            leased = self._session.state is SessionState.LEASED
            self.told.emit(LEASED_WORDS if leased else tr("Load a model first."))
            return
        self._take = take
        self._work.start(lambda report, cancelled: _worked(work, engine, report, cancelled))
        self.changed.emit()

    def _take_scored(self, scored: Scored) -> None:
        self.scored = scored

    def _take_written(self, written: Compressed) -> None:
        self.written = written

    def _on_progress(self, status: LoadStatus) -> None:
        known = 0 < status.total < COUNTED_UP_TO
        words = status.stage
        if known:
            words = tr("{stage}, {i} of {all}", stage=words, i=status.done + 1, all=status.total)
        self.progressed.emit(sentence(words), status.done / status.total if known else -1.0)

    def _on_ended(self, outcome: Outcome) -> None:
        if self._closed:
            self.deleteLater()
            return
        if self._next is not None:
            (work, take), self._next = self._next, None
            self._start(work, take)
            return
        if outcome.result is not None:
            self._take(outcome.result)
        self.told.emit(sentence(outcome.error) if outcome.error else "")
        self.changed.emit()


def _worked(work: Work, engine: EngineFace, report: Any, cancelled: Any) -> Any:
    return work(engine, report=report, cancelled=cancelled)
