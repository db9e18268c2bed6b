"""Saved runs on the Play page: read off the window's thread, shown in the engine's place, and put away again."""

import threading
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app import storage
from app.playback.bridge import Bridge
from app.session.engine_lease import Report
from app.session.load_progress import LoadStatus
from app.session.long_work import LongWork, Outcome
from app.session.session import Session, SessionState
from app.ui.ask_path import ask_path
from app.ui.banner import Banner
from app.words import back_words, sentence
from engine import InvalidInput, Trace, load_trace
from engine.compare import RACE_SUFFIX
from engine.jobs import LoadProgress
from engine.trace import RUN_SUFFIX, busiest


def read(path: Path, report: Report, cancelled: threading.Event) -> Trace:
    """The run in a file. Raises InvalidInput and LoadCancelled."""
    trace = load_trace(path, lambda done, total: report(LoadProgress("reading", done, total)), cancelled)
    if not trace.records:
        raise InvalidInput(f"{path} holds no record: nothing was written before its run ended")
    return trace


class SavedRuns(QObject):
    """Shows a run file in the bridge; the engine's own trace is kept and comes back with `close` or the next prompt."""

    opened = Signal()  # a run is on show
    closed = Signal()  # the engine's own trace is again

    def __init__(self, session: Session, bridge: Bridge, banner: Banner, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._bridge, self._banner = session, bridge, banner
        self.path: Path | None = None  # of the run on show
        self._work: LongWork | None = None  # that reads a file
        self._mentioned: list[str] = []
        session.submitted.connect(self._on_submitted)

    @property
    def reading(self) -> bool:
        return self._work is not None

    @property
    def running(self) -> bool:
        """Whether requests of the engine run: a saved run may have ended in the midst of its own."""
        return self.path is None and self._bridge.busy

    def ask(self, parent: QWidget, take: Callable[[str], object]) -> None:
        """Lets a person choose one, or a race."""
        filters = f"Runs and races (*{RUN_SUFFIX} *{RACE_SUFFIX})", "All files (*)"
        ask_path(parent, "run_dialog", "Open a saved run or race", storage.runs(), take, filters)

    def open(self, path: Path) -> None:
        """Reads a run and shows it; one that is being read is given up. Not while requests run."""
        if self._session.state is SessionState.LEASED or self.running:
            words, stop = "A saved run can be shown when they are done.", ("Stop them", self._session.stop)
            self._banner.tell("warning", "Requests are running", words, action=stop)
            return
        self.cancel()
        work = self._work = LongWork(self._session, self)
        work.progressed.connect(lambda status: self._tell(path, status))
        work.ended.connect(lambda outcome: self._on_ended(work, path, outcome))
        work.ended.connect(work.deleteLater)
        work.start(lambda report, cancelled: read(path, report, cancelled))

    def cancel(self) -> None:
        """Ends the reading under way."""
        if self._work is not None:
            self._work.close()
            self._work = None
            self._banner.hide()

    def close(self) -> None:
        """The engine's own trace again."""
        if self.path is not None:
            self.path = None
            self._banner.hide()
            self._bridge.show(self._session.trace or Trace())
            self.closed.emit()

    def _on_ended(self, work: LongWork, path: Path, outcome: Outcome) -> None:
        if work is not self._work:
            return  # it was given up
        self._work = None
        if outcome.error:
            self._banner.tell("error", "The run was not opened", sentence(outcome.error))
        elif not outcome.cancelled:
            self.show(outcome.result, path)

    def _on_submitted(self) -> None:
        self.cancel()  # a run that is still being read would take the place of the requests that run now
        self.close()

    def _tell(self, path: Path, status: LoadStatus) -> None:
        words = f"{status.done:,} of {status.total:,} records"
        self._banner.tell("info", f"Reading {path.stem}", words, action=("Cancel", self.cancel))

    def show(self, trace: Trace, path: Path) -> None:
        """Shows a run that is in memory; `path` is where it is kept."""
        self.path, self._mentioned = path, []
        self._bridge.show(trace)
        self._bridge.scope.seek((trace.origin or 0.0) + busiest([trace]))
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
        keys = "It stands where most was running. Space plays it, comma and period step through it, F goes to its end."
        words = [keys, *([f"At {told[0]}{more}"] if told else [])]
        back = (back_words(), self.close)
        self._banner.tell("info", f"A saved run: {path.stem}", "\n".join(words), action=back)
