"""Counts tokens with the loaded model's own tokenizer, off the window's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from PySide6.QtCore import QObject, QTimer, Signal

from app.session.session import Session
from engine import InvalidInput
from engine.config import Message
from engine.workloads import counter_for

REST_MS = 60  # without another key, until what is written is counted
GUESS = 4  # characters a token
KEPT = 2_000  # texts whose tokens are remembered


class Counting(QObject):
    """`context` and `exact` are those of the loaded model."""

    changed = Signal()  # another model is there: count anew

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.exact, self.context = False, 0
        self._count: Callable[[str], int] = guessed
        self._overhead: Callable[[list[Message]], int] = lambda messages: sum(guessed(m["content"]) for m in messages)
        self._asked: Callable[[], Sequence[Message]] | None = None
        self._told: Callable[[int, int, int], object] | None = None
        self._asking = QTimer(self, interval=REST_MS, singleShot=True)
        self._asking.timeout.connect(lambda: session.start(self._tell()))
        session.model_loaded.connect(lambda card: session.start(self._learn()))
        if session.card is not None:
            session.start(self._learn())

    async def count(self, text: str) -> int:
        count = self._count
        return await self._session.off_thread(lambda: count(text))

    def ask(self, messages: Callable[[], Sequence[Message]], told: Callable[[int, int, int], object]) -> None:
        """Tells once nothing is asked any more: tokens of the last message, of all, and of all with their template."""
        self._asked, self._told = messages, told
        self._asking.start()

    def close(self) -> None:
        self._asking.stop()
        self._asked = None

    async def _tell(self) -> None:
        asked, told = self._asked, self._told
        if asked is None or told is None:
            return
        messages, count, overhead = list(asked()), self._count, self._overhead
        sizes = await self._session.off_thread(
            lambda: (count(messages[-1]["content"]), sum(count(m["content"]) for m in messages), overhead(messages))
        )
        if asked is self._asked and count is self._count:
            told(*sizes)

    async def _learn(self) -> None:
        """The model's own tokenizer, where it is at hand."""
        source = self._session.spec.source
        try:
            counter = await self._session.off_thread(lambda: counter_for(source))
        except InvalidInput:
            counter = None
        card = self._session.card
        self.exact = counter is not None and counter.exact
        self._count = lru_cache(maxsize=KEPT)(counter.count) if counter is not None and counter.exact else guessed
        around = counter.bound([{"role": "user", "content": ""}]) if counter is not None else 0
        count = self._count
        self._overhead = lambda messages: sum(count(m["content"]) + around for m in messages)
        self.context = card.context if card is not None else 0
        self.changed.emit()


def guessed(text: str) -> int:
    """Tokens of a text, as far as its length tells."""
    return -(-len(text) // GUESS)
