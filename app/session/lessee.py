"""What a race and a sweep have in common: they borrow the session's engine, play on it in one of the session's threads,
and act on what they hear from there at most thirty times a second, on the GUI thread."""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from time import perf_counter
from typing import Any, TypeVar

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.session.loading.engine_lease import EngineLease
from app.session.session import Session
from engine import InvalidInput, Race, Sweep
from engine.jobs import engine_missing

FRAMES_PER_SECOND = 30


P = TypeVar("P", Race, Sweep)


class Phase(StrEnum):
    EMPTY = "nothing yet"
    RUNNING = "running"
    ENDING = "giving the engine back"
    OVER = "over"


class Lessee(QObject):
    """One piece of work at a time on the lent engine."""

    phase_changed = Signal(object)  # Phase
    refused = Signal(str, bool)  # why nothing began, and whether it could once the Play page's requests are stopped

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.phase = Phase.EMPTY
        self._lease: EngineLease | None = None
        self._stopping = False
        self._events: deque[tuple[float, Any]] = deque()
        self._timer = QTimer(self, interval=1000 // FRAMES_PER_SECOND, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._on_frame)

    @property
    def running(self) -> bool:
        return self.phase is Phase.RUNNING

    @property
    def busy(self) -> bool:
        """Whether another one cannot begin yet."""
        return self.phase in (Phase.RUNNING, Phase.ENDING)

    def stop(self) -> None:
        """Ends it: what is finished stays."""
        self._stopping = True
        if self._lease is not None:
            self._lease.cancelled.set()

    def close(self) -> None:
        """No more frames: the window closes."""
        self.stop()
        self._timer.stop()

    def _play(self, prepare: Callable[[], P], begin: Callable[[P], None]) -> None:
        """Prepares the work in a thread, begins and plays it; `_after` follows while the engine is still lent."""
        if not self.busy:
            before = self.phase
            self._set_phase(Phase.RUNNING)
            self._session.start(self._live(prepare, begin, before))

    async def _live(self, prepare: Callable[[], P], begin: Callable[[P], None], before: Phase) -> None:
        self._stopping = False
        session = self._session
        try:
            if words := engine_missing():
                raise InvalidInput(words)
            work = await session.off_thread(prepare)
            lease = self._lease = await session.lease()
        except InvalidInput as error:
            self._set_phase(before)
            self.refused.emit(str(error), session.ready and session.busy)
            return
        except asyncio.CancelledError:
            self._set_phase(before)
            raise
        if self._stopping:
            lease.cancelled.set()
        self._events.clear()
        begin(work)
        self._timer.start()
        try:
            await session.off_thread(lambda: work.play(lease, self._tell, lease.cancelled))
        finally:
            try:
                self._on_frame()
                self._set_phase(Phase.ENDING)
                if not session.closing:
                    await self._after()
            finally:
                await session.take_back()
                self._lease = None
                self._set_phase(Phase.OVER)

    def _tell(self, event: object) -> None:
        """On the thread that plays: the next frame acts on it."""
        self._events.append((perf_counter(), event))

    def _hear(self) -> None:
        """Acts on every event there is."""
        while self._events:
            self._act(*self._events.popleft())

    def _act(self, time: float, event: Any) -> None:
        """`time` is that of the event (`perf_counter`)."""
        raise NotImplementedError

    def _on_frame(self) -> None:
        raise NotImplementedError

    async def _after(self) -> None:
        """What is done with the result."""

    def _set_phase(self, phase: Phase) -> None:
        if phase is not self.phase:
            self.phase = phase
            self.phase_changed.emit(phase)
