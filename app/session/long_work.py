"""Work of minutes in a child process of the engine, seen from the GUI thread: begun, followed, ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from app.session.load_progress import LoadMeter
from app.session.session import Session
from engine import InvalidInput
from engine.jobs import JobDied, LoadCancelled, LoadProgress

LOOK_MS = 100
Report = Callable[[LoadProgress], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`result` of what went well; else why there is none: it was cancelled, or `error` says what happened."""

    result: Any = None
    error: str = ""
    cancelled: bool = False


class LongWork(QObject):
    """One piece of work at a time, in one of the session's threads. It is cancelled when the session ends."""

    progressed = Signal(object)  # LoadStatus
    ended = Signal(object)  # Outcome

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.running = False
        self._cancelled = threading.Event()
        self._latest: LoadProgress | None = None
        self._meter = LoadMeter()
        self._look = QTimer(self)
        self._look.setInterval(LOOK_MS)
        self._look.timeout.connect(self._on_look)

    @property
    def ending(self) -> bool:
        """Whether it was cancelled and is not over yet."""
        return self.running and self._cancelled.is_set()

    def start(self, work: Callable[[Report, threading.Event], Any]) -> None:
        """Begins; nothing while another piece is under way. `work` blocks, and looks at the event."""
        if self.running or self._session.closing:
            return
        self.running, self._latest = True, None
        self._cancelled, self._meter = threading.Event(), LoadMeter()
        self._look.start()
        self._session.start(self._live(work, self._cancelled))

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        """Nobody listens any more: it ends as soon as it can."""
        self.cancel()
        self._look.stop()

    async def _live(self, work: Callable[[Report, threading.Event], Any], cancelled: threading.Event) -> None:
        def report(progress: LoadProgress) -> None:
            self._latest = progress  # on the working thread; the timer reads the latest

        try:
            outcome = Outcome(await self._session.off_thread(lambda: work(report, cancelled)))
        except (LoadCancelled, asyncio.CancelledError):
            outcome = Outcome(cancelled=True)
        except (InvalidInput, JobDied) as error:
            outcome = Outcome(error=str(error))
        except Exception as error:  # whatever it was, the person is told and the window goes on
            outcome = Outcome(error=f"{type(error).__name__}: {error}".splitlines()[0])
        self.running = False
        self._look.stop()
        if not self._session.closing:
            self.ended.emit(outcome)

    def _on_look(self) -> None:
        if self._session.closing:
            self.close()
            return
        progress, self._latest = self._latest, None
        if progress is not None:
            self.progressed.emit(self._meter.read(progress))
