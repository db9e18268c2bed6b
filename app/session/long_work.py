"""Work of minutes in a child process of the engine, seen from the GUI thread: begun, followed, ended."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.session.loading.engine_lease import Report
from app.session.loading.progress_relay import ProgressRelay
from app.session.session import Session
from engine import InvalidInput
from engine.jobs import JobDied, LoadCancelled

Work = Callable[[Report, threading.Event], Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`result` of what went well; else why there is none: it was cancelled, or `error` says what happened."""

    result: Any = None
    error: str = ""
    cancelled: bool = False


class LongWork(QObject):
    """One piece of work at a time, in one of the session's threads. It is cancelled when the session ends."""

    ended = Signal(object)  # Outcome

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.running = False
        self._cancelled = threading.Event()
        self._relay = ProgressRelay(self)
        self.progressed = self._relay.progressed  # LoadStatus

    @property
    def ending(self) -> bool:
        """Whether it was cancelled and is not over yet."""
        return self.running and self._cancelled.is_set()

    def start(self, work: Work, cancelled: threading.Event | None = None) -> None:
        """Begins; nothing while another piece is under way. `work` blocks, and looks at the event."""
        if not self.running and not self._session.closing:
            self.running, self._cancelled = True, cancelled or threading.Event()
            self._relay.clear()
            self._session.start(self._live(work, self._cancelled))

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        """Nobody listens any more: it ends as soon as it can."""
        self.cancel()
        self._relay.blockSignals(True)

    async def _live(self, work: Work, cancelled: threading.Event) -> None:
        try:
            outcome = Outcome(await self._session.off_thread(lambda: work(self._relay.report, cancelled)))
        except (LoadCancelled, asyncio.CancelledError):
            outcome = Outcome(cancelled=True)
        except (InvalidInput, JobDied) as error:
            outcome = Outcome(error=str(error))
        except Exception as error:  # whatever it was, the person is told and the window goes on
            outcome = Outcome(error=f"{type(error).__name__}: {error}".splitlines()[0])
        self.running = False
        if self._session.closing:
            self._relay.clear()
        else:
            self._relay.end()
            self.ended.emit(outcome)
