"""Saved runs on the Play page: read off the window's thread, shown in the engine's place, and put away again."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app import storage
from app.playback.bridge import Bridge
from app.session.session import Session, SessionState
from app.ui.banner import Banner
from app.words import sentence
from engine import InvalidInput, Trace, load_trace
from engine.jobs import LoadCancelled
from engine.trace import RUN_SUFFIX


class SavedRuns(QObject):
    """Shows a run file in the bridge; the engine's own trace is kept and comes back with `close` or the next prompt."""

    opened = Signal()  # a run is on show
    closed = Signal()  # the engine's own trace is again

    def __init__(self, session: Session, bridge: Bridge, banner: Banner, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._bridge, self._banner = session, bridge, banner
        self.path: Path | None = None  # of the run on show
        self._cancelled = threading.Event()
        self._reading = 0
        self._told = 0  # per cent
        self._mentioned: list[str] = []
        session.submitted.connect(self._on_submitted)

    @property
    def reading(self) -> bool:
        return self._reading > 0

    def ask(self, parent: QWidget) -> None:
        """Lets a person choose one."""
        dialog = QFileDialog(parent, "Open a saved run", str(storage.runs()))
        dialog.setObjectName("run_dialog")
        dialog.setNameFilters([f"Runs (*{RUN_SUFFIX})", "All files (*)"])
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(lambda path: self.open(Path(path)))
        dialog.open()

    def open(self, path: Path) -> None:
        """Reads a run and shows it; one that is being read is given up. Not while requests run."""
        if self._session.state is SessionState.LEASED or (self.path is None and self._bridge.busy):
            self._banner.tell(
                "warning", "Requests are running", "A saved run can be shown when they are done.",
                action=("Stop them", self._session.stop),
            )  # fmt: skip
            return
        self.cancel()
        self._cancelled = threading.Event()
        self._session.start(self._read(path, self._cancelled))

    def cancel(self) -> None:
        """Ends the reading under way."""
        self._cancelled.set()

    def close(self) -> None:
        """The engine's own trace again."""
        if self.path is not None:
            self.path = None
            self._banner.hide()
            self._bridge.show(self._session.trace or Trace())
            self.closed.emit()

    async def _read(self, path: Path, cancelled: threading.Event) -> None:
        loop, self._told = asyncio.get_running_loop(), 0

        def on_progress(done: int, total: int) -> None:
            # called on the reading thread
            share = 100 * done // max(total, 1)
            if share != self._told and not loop.is_closed():
                self._told = share
                loop.call_soon_threadsafe(self._tell, path, done, total, cancelled)

        self._reading += 1
        try:
            trace: Trace = await self._session.off_thread(lambda: load_trace(path, on_progress, cancelled))
            if cancelled.is_set():
                raise LoadCancelled(f"reading {path.name} was cancelled")
            if not trace.records:
                raise InvalidInput(f"{path} holds no record: nothing was written before its run ended")
        except LoadCancelled:
            if cancelled is self._cancelled:  # else the banner is that of the run that was opened in its place
                self._banner.hide()
        except InvalidInput as error:
            if cancelled is self._cancelled:
                self._banner.tell("error", "The run was not opened", sentence(str(error)))
        else:
            self._show(trace, path)
        finally:
            self._reading -= 1

    def _on_submitted(self) -> None:
        self.cancel()  # a run that is still being read would take the place of the requests that run now
        self.close()

    def _tell(self, path: Path, done: int, total: int, cancelled: threading.Event) -> None:
        if self._reading and not cancelled.is_set():
            words = f"{done:,} of {total:,} records"
            self._banner.tell("info", f"Reading {path.stem}", words, action=("Cancel", self.cancel))

    def _show(self, trace: Trace, path: Path) -> None:
        self.path, self._mentioned = path, []
        self._bridge.show(trace)
        self._tell_run(path)
        self.opened.emit()

    def mention(self, time: float, text: str) -> None:
        """Something that the run on show told a person to know, seconds after its beginning."""
        self._mentioned.append(f"{max(0.0, time):,.1f} s: {text}.")
        if self.path is not None:
            self._tell_run(self.path)

    def _tell_run(self, path: Path) -> None:
        told = self._mentioned
        more = f" (and {len(told) - 1:,} more such words)" if len(told) > 1 else ""
        words = ["Space plays it, comma and period step through it.", *([f"At {told[0]}{more}"] if told else [])]
        self._banner.tell(
            "info", f"A saved run: {path.stem}", "\n".join(words), action=("Back to the engine", self.close)
        )  # fmt: skip
