"""Where the present trace is written."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app import storage
from engine import InvalidInput, Trace
from engine.trace import TraceWriter

LONG = 8_192  # records from which on a run is shown before all of it is read, and is worth an index


class RunFile(QObject):
    """One file at a time, by `off_thread`. A disk that takes none costs only the file: `failed` says why."""

    written = Signal(object)  # Path of a long run that was written to its end
    failed = Signal(str)

    def __init__(self, off_thread: Callable[[Callable[[], Any]], Awaitable[Any]], parent: QObject) -> None:
        super().__init__(parent)
        self._off_thread = off_thread
        self._writer: TraceWriter | None = None

    @property
    def path(self) -> Path | None:
        """None until there is something to tell."""
        return self._writer.path if self._writer is not None else None

    async def open(self, trace: Trace, source: str) -> None:
        """A file for this trace of a model, where it has none yet."""
        if self._writer is None:
            try:
                self._writer = await self._off_thread(lambda: TraceWriter(trace, storage.new_run_file(source)))
            except InvalidInput as error:
                self.failed.emit(str(error))

    async def close(self) -> None:
        """Writes it to its end; what comes later, even while it does so, begins another."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await self._off_thread(writer.close)
            if writer.error:
                self.failed.emit(writer.error)
            elif len(writer.trace.records) > LONG:
                self.written.emit(writer.path)
