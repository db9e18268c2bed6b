"""Another model for the second column, loaded beside the first where memory holds both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.language import tr
from app.session.loading.progress import LoadStatus
from app.session.memory.estimate import needed_and_free
from app.session.session import Session, SessionState
from app.words import adapters_words, bytes_words, model_words, sentence
from engine import ModelSpec
from engine.config import SCHEMES, STORED, missing

QUANTIZATIONS = ("none", "int8", "nf4")
POOL = 256 << 20  # bytes of its KV pool: a chat has few requests
RUNNING = 4


def spec_words(spec: ModelSpec) -> str:
    """ "demo stories", "demo stories, int8"."""
    title = "" if spec.quantization == "none" else f", {SCHEMES[spec.quantization].title}"
    beside = f", {adapters_words(spec.adapter_names)}" if spec.adapters else ""
    return f"{model_words(spec.source)}{title}{beside}"


def choices(loaded: ModelSpec, recent: Sequence[ModelSpec], held: str = "none") -> list[ModelSpec]:
    """What could stand beside the model that is loaded: itself, held otherwise, the demo, those of before. `held`: how
    it is, whatever was asked for."""
    stored = loaded.quantization == "awq" or (loaded.quantization == "none" and held in STORED)
    ways = [] if stored else [name for name in QUANTIZATIONS if not missing(name)]
    found = [replace(loaded, quantization=name, dtype="auto") for name in ways]
    found += [ModelSpec("demo"), *recent]
    return [spec for i, spec in enumerate(found) if spec != loaded and spec not in found[:i]]


class SecondModel(QObject):
    """`session` is its own, None while both columns are answered by the first model."""

    changed = Signal()  # it is chosen, loading, there, or gone
    failed = Signal(str)

    def __init__(self, first: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._first = first
        self.session: Session | None = None
        self.spec: ModelSpec | None = None
        self.words = ""  # how far its load is

    @property
    def ready(self) -> bool:
        """Whether the second column can be answered."""
        return self.spec is None or (self.session is not None and self.session.ready)

    def choose(self, spec: ModelSpec | None) -> None:
        """Loads it; None gives it back."""
        if spec != self.spec:
            self.close()
            self.spec = spec
            self.changed.emit()
            if spec is not None:
                self._first.start(self._load(spec))

    def close(self) -> None:
        """Gives its memory back; the first session waits for that when it ends."""
        session, self.session, self.spec, self.words = self.session, None, None, ""
        if session is not None:
            session.cancel_load()
            session.blockSignals(True)
            self._first.start(_end(session))

    async def _load(self, spec: ModelSpec) -> None:
        needed, free = await self._first.off_thread(lambda: needed_and_free(spec))
        if spec is not self.spec:
            return
        if needed + POOL > free:
            words = tr(
                "{model} needs about {needed}, {free} are free: choose a smaller one, or answer both columns by one "
                "model",
                model=spec_words(spec),
                needed=bytes_words(needed + POOL),
                free=bytes_words(free),
            )
            self._fail(words)
            return
        session = self.session = Session()  # which outlives this page until it is closed
        session.load_progressed.connect(self._on_progress)
        session.load_failed.connect(self._fail)
        session.state_changed.connect(lambda state: self._on_state(session, state))
        config = replace(self._first.config, kv_memory=POOL, max_running=RUNNING)
        await session.load(spec, config)

    def _on_progress(self, status: LoadStatus) -> None:
        self.words = status.words
        self.changed.emit()

    def _on_state(self, session: Session, state: SessionState) -> None:
        if state is SessionState.READY:
            self.words = ""
        if session is self.session:
            self.changed.emit()

    def _fail(self, words: str) -> None:
        self.close()
        self.changed.emit()
        if words:
            self.failed.emit(sentence(words))


async def _end(session: Session) -> None:
    await session.close()
    session.deleteLater()
