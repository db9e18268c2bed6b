"""The file that a trace is written to while it grows. No Qt in here."""

from __future__ import annotations

from pathlib import Path

from app import storage
from app.session.off_thread import OffThread
from engine import InvalidInput, Trace
from engine.trace import TraceWriter


class RunFile:
    """One file at a time. What comes back is what went wrong, in words; "" is nothing."""

    def __init__(self) -> None:
        self._writer: TraceWriter | None = None

    @property
    def path(self) -> Path | None:
        """None until a file is open."""
        return self._writer.path if self._writer is not None else None

    async def open(self, off_thread: OffThread, trace: Trace, source: str) -> str:
        """Begins a file for a run of this model, unless one is open."""
        if self._writer is None:
            try:
                self._writer = await off_thread(lambda: TraceWriter(trace, storage.new_run_file(source)))
            except InvalidInput as error:
                return str(error)
        return ""

    async def close(self, off_thread: OffThread) -> str:
        """Writes the trace to its end; what comes later, even while it does so, begins another file."""
        writer, self._writer = self._writer, None
        if writer is None:
            return ""
        await off_thread(writer.close)
        return writer.error
