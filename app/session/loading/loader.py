"""Loads one engine after another in a thread: how far it is, and cancelling it."""

import os
import threading
from collections.abc import Awaitable, Callable

from PySide6.QtCore import QObject

from app.language import tr
from app.preferences import IN_PROCESS, THREADS
from app.session.loading.engine_lease import Report
from app.session.loading.progress_relay import ProgressRelay
from engine import EngineConfig, InvalidInput, ModelSpec
from engine.core import EngineFace
from engine.jobs import LoadCancelled
from engine.remote import RemoteEngine, ServerAddress

OffThread = Callable[[Callable[[], EngineFace]], Awaitable[EngineFace]]  # work for a thread of the session
MOST_TORCH_THREADS = max(1, (os.cpu_count() or 2) - 1)  # a core is left to the window: who shares one slows all others


def failure_words(error: Exception) -> str:
    """What a person is told of a load that failed."""
    named = isinstance(error, (InvalidInput, RuntimeError)) and str(error)
    return named or f"{type(error).__name__}: {error}"


class EngineLoader(QObject):
    """`in_process` keeps the engines beside the window, for debugging."""

    def __init__(self, in_process: bool, parent: QObject) -> None:
        super().__init__(parent)
        self._in_process = in_process
        self._cancelled = threading.Event()
        self._relay = ProgressRelay(self)
        self.progressed = self._relay.progressed  # LoadStatus of the load under way

    def expect(self) -> None:
        """Another load begins: it can be cancelled from now on."""
        self._cancelled = threading.Event()
        self._relay.clear()

    def cancel(self) -> None:
        """Ends the load under way."""
        self._cancelled.set()

    async def load(self, off_thread: OffThread, spec: ModelSpec, config: EngineConfig) -> EngineFace:
        """The engine, made by `off_thread`. Raises LoadCancelled, and whatever a load may raise."""
        cancelled, report = self._cancelled, self._relay.report
        try:
            return await off_thread(lambda: self.make(spec, config, report, cancelled))
        finally:
            self._relay.clear()

    async def connect_to(self, off_thread: OffThread, server: ServerAddress) -> EngineFace:
        """A server's engine. Raises what a connection may raise."""
        cancelled = self._cancelled
        return await off_thread(lambda: RemoteEngine(server, cancelled=cancelled))

    def make(
        self, spec: ModelSpec, config: EngineConfig, progress: Report | None, cancelled: threading.Event
    ) -> EngineFace:
        """Loads a model on the calling thread; setting `cancelled` ends that with LoadCancelled."""
        engine_type: Callable[..., EngineFace]
        if self._in_process or IN_PROCESS.value:
            from engine import Engine as engine_type
        else:
            from engine import EngineProcess as engine_type
        threads = THREADS.value or None
        engine = engine_type(
            spec, config, progress=progress, cancelled=cancelled, threads=threads, most_threads=MOST_TORCH_THREADS
        )
        if cancelled.is_set():
            engine.close()
            raise LoadCancelled(tr("the load was cancelled"))
        return engine
