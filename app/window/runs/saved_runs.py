"""Saved runs on the Play page: read off the window's thread, shown in the engine's place, and put away again."""

import threading
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from app import storage
from app.language import tr
from app.playback.bridge import Bridge
from app.session.loading.engine_lease import Report
from app.session.loading.progress import LoadStatus
from app.session.long_work import LongWork, Outcome
from app.session.run_file import LONG
from app.session.session import Session, SessionState
from app.ui.banner import Banner
from app.ui.sheets.ask_path import ask_path
from app.window.index.indexes import TraceIndexes
from app.words import back_words, sentence
from engine import InvalidInput, Trace, load_trace
from engine.compare import RACE_SUFFIX
from engine.jobs import LoadProgress
from engine.trace import RUN_SUFFIX, FiledLog, busiest

FIRST = 256  # records: a long run is shown from the first so many on, while the others are read
HEAD_START, REST = 1.0, 0.015  # seconds that the window has to paint the first, and between two batches of the others


def read(path: Path, trace: Trace, report: Report, cancelled: threading.Event) -> Trace:
    """The run in a file, into this trace. Raises InvalidInput and LoadCancelled."""

    def tell(done: int, total: int) -> None:
        report(LoadProgress("reading", done, total))
        if total > LONG:
            cancelled.wait(HEAD_START if done <= FIRST else REST)

    load_trace(path, tell, cancelled, trace)
    if not trace.records:
        raise InvalidInput(tr("{path} holds no record: nothing was written before its run ended", path=path))
    return trace


class SavedRuns(QObject):
    """Shows a run file in the bridge; the engine's own trace is kept and comes back with `close` or the next prompt."""

    opened = Signal()  # a run is on show
    closed = Signal()  # the engine's own trace is again
    _changed = Signal(object)  # Path of a run whose file is another than its index tells

    def __init__(self, session: Session, bridge: Bridge, banner: Banner, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._bridge, self._banner = session, bridge, banner
        self.path: Path | None = None  # of the run on show
        self._work: LongWork | None = None  # that reads a file
        self._grows: Trace | None = None  # on show while it is read
        self._mentioned: list[str] = []
        self.indexes = TraceIndexes(session, self)
        self.indexes.built.connect(self._on_index)
        self._changed.connect(self._on_changed, Qt.ConnectionType.QueuedConnection)
        session.submitted.connect(self._on_submitted)

    @property
    def reading(self) -> bool:
        return self._work is not None

    @property
    def running(self) -> bool:
        """Whether requests of the engine run: a saved run may have ended in the midst of its own."""
        return self.path is None and self._bridge.running

    def ask(self, parent: QWidget, take: Callable[[str], object]) -> None:
        """Lets a person choose one, or a race."""
        filters = tr("Runs and races ({endings})", endings=f"*{RUN_SUFFIX} *{RACE_SUFFIX}"), tr("All files (*)")
        ask_path(parent, "run_dialog", tr("Open a saved run or race"), storage.runs(), take, filters)

    def open(self, path: Path) -> None:
        """Reads a run and shows it; one that is being read is given up. Not while requests run."""
        if self._session.state is SessionState.LEASED or self.running:
            words, stop = tr("A saved run can be shown when they are done."), (tr("Stop them"), self._session.stop)
            self._banner.tell("warning", tr("Requests are running"), words, action=stop)
            return
        self.cancel()
        work, trace = LongWork(self._session, self), Trace()
        self._work, self._grows = work, None
        work.progressed.connect(lambda status: self._on_progress(trace, path, status))
        work.ended.connect(lambda outcome: self._on_ended(work, path, outcome))
        work.ended.connect(work.deleteLater)
        work.start(lambda report, cancelled: self.indexes.open(path) or read(path, trace, report, cancelled))

    def cancel(self) -> None:
        """Ends the reading under way; a run that was shown meanwhile is put away."""
        if self._work is not None:
            self._work.close()
            self._work = None
            self._banner.hide()
            self._put_away()

    def close_down(self) -> None:
        """The window closes."""
        self.indexes.close_down()
        self.cancel()

    def _put_away(self) -> None:
        """What was shown before all of it was read is not kept."""
        if self._grows is not None and self._grows is self._bridge.trace:
            self.close()
        self._grows = None

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
            self._put_away()
            self._banner.tell("error", tr("The run was not opened"), sentence(outcome.error))
        elif not outcome.cancelled and self._grows is None:
            self.show(outcome.result, path)
        elif not outcome.cancelled:
            self._grows = None
            self._tell_run(path, grown=True)

    def _on_submitted(self) -> None:
        self.cancel()  # a run that is still being read would take the place of the requests that run now
        self.close()

    def _on_progress(self, trace: Trace, path: Path, status: LoadStatus) -> None:
        if self._grows is None and status.total > LONG and status.done >= FIRST:
            self._grows = trace
            self.show(trace, path)
            self.indexes.ask(path)
        words = tr("{done:,} of {total:,} records", done=status.done, total=status.total)
        if self._grows is not None:
            words = tr(
                "{done:,} of {total:,} records; what is read can be looked at", done=status.done, total=status.total
            )
        self._banner.tell("info", tr("Reading {run}", run=path.stem), words, action=(tr("Cancel"), self.cancel))

    def show(self, trace: Trace, path: Path) -> None:
        """Shows a run that is in memory; `path` is where it is kept."""
        self.path, self._mentioned = path, []
        if isinstance(trace.records, FiledLog):
            trace.records.changed = lambda words: self._changed.emit(path)
        self._bridge.show(trace)
        self._bridge.scope.seek((trace.origin or 0.0) + busiest([trace]))
        self._tell_run(path)
        self.opened.emit()

    def _on_index(self, path: Path) -> None:
        """Of a run that may be on show, and of which not all was read: the rest is there now."""
        if path == self.path and (self.reading or self._bridge.behind):
            self._session.start(self._take_over(path, self._bridge.trace))

    async def _take_over(self, path: Path, before: Trace) -> None:
        trace = await self._session.off_thread(lambda: self.indexes.open(path))
        scope = self._bridge.scope
        if trace is None or before is not self._bridge.trace:
            return
        if self._work is not None:
            self._work.close()
            self._work = None
        self._grows = None
        moment, request, playing = scope.moment, scope.request, scope.playing
        self.show(trace, path)
        scope.seek(moment)
        scope.select(request)
        if playing:
            scope.toggle()
        self._tell_run(path, grown=True)

    def _on_changed(self, path: Path) -> None:
        """What was known of a run holds no longer: it is read from its file."""
        if path == self.path:
            self.indexes.drop(path)
            self.close()
            self.open(path)

    def mention(self, time: float, text: str) -> None:
        """Something that the run on show told a person to know, seconds after its beginning."""
        self._mentioned.append(f"{max(0.0, time):,.1f} s: {text}.")
        if self.path is not None and self._grows is None:
            self._tell_run(self.path)

    def _tell_run(self, path: Path, *, grown: bool = False) -> None:
        told = self._mentioned
        where = tr("All of it is there now.") if grown else tr("It stands where most was running.")
        keys = tr("Space plays it, comma and period step through it, F goes to its end.")
        words = [f"{where} {keys}"]
        if len(told) > 1:
            words.append(tr("At {what} (and {more:,} more such words)", what=told[0], more=len(told) - 1))
        elif told:
            words.append(tr("At {what}", what=told[0]))
        back = (back_words(), self.close)
        self._banner.tell("info", tr("A saved run: {run}", run=path.stem), "\n".join(words), action=back)
