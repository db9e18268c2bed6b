"""Downloads from the hub: one at a time, the others wait; what was stopped can go on, also after the next start."""

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app import storage
from app.session.loading.progress import LoadStatus
from app.session.long_work import LongWork, Outcome
from app.session.session import Session
from engine.checkpoints import download

KEY = "models/downloads"
RATE_SECONDS = 5.0  # over which the rate is told
SETTLED = 1.0  # seconds from which on it is


class DownloadState(StrEnum):
    WAITING = "waiting"
    RUNNING = "downloading"
    STOPPED = "stopped"
    FAILED = "failed"
    DONE = "downloaded"


@dataclass(slots=True, eq=False)
class Download:
    """A model that is fetched, was, or will be. `done` and `total` are bytes, `rate` bytes a second, 0 while unknown;
    `error` why it failed; `folder` where it is when it is done."""

    id: str
    revision: str
    total: int
    state: DownloadState = DownloadState.WAITING
    done: int = 0
    rate: float = 0.0
    stage: str = ""
    error: str = ""
    folder: Path | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def active(self) -> bool:
        return self.state in (DownloadState.WAITING, DownloadState.RUNNING)

    @property
    def share(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds that are left, where that can be said."""
        return (self.total - self.done) / self.rate if self.rate > 0 and self.total > self.done else None


class Downloads(QObject):
    """`session` lends its threads. The signals carry the Download they are about."""

    changed = Signal(object)
    finished = Signal(object)  # it is whole, on this machine
    removed = Signal(object)

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._closed = False
        self._samples: deque[tuple[float, int]] = deque()
        self._work = LongWork(session, self)
        self._work.progressed.connect(self._on_progress)
        self._work.ended.connect(self._on_ended)
        self.entries: list[Download] = _kept()

    @property
    def running(self) -> Download | None:
        return next((each for each in self.entries if each.state is DownloadState.RUNNING), None)

    def find(self, id: str, revision: str | None) -> Download | None:
        """That of a model; any revision where none is named."""
        fits = (d for d in self.entries if d.id == id and revision in (None, d.revision))
        return next(fits, None)

    def start(self, id: str, revision: str, total: int) -> Download:
        """Begins a download, or lets it go on; waits for the one that runs."""
        entry = self.find(id, revision)
        if entry is None:
            entry = Download(id, revision, total)
            self.entries.append(entry)
        elif entry.active:
            return entry
        entry.state, entry.error, entry.rate, entry.stage = DownloadState.WAITING, "", 0.0, ""
        entry.total = max(entry.total, total)
        entry.cancelled = threading.Event()
        self._keep()
        self.changed.emit(entry)
        self._next()
        return entry

    def cancel(self, entry: Download) -> None:
        """Stops it; what was fetched stays, so that it can go on."""
        entry.cancelled.set()
        if entry.state is DownloadState.WAITING:
            entry.state = DownloadState.STOPPED
            self._keep()
        self.changed.emit(entry)

    def remove(self, entry: Download) -> None:
        """Takes it off the list, unless it runs; its files stay."""
        if entry.state is not DownloadState.RUNNING and entry in self.entries:
            self.entries.remove(entry)
            self._keep()
            self.removed.emit(entry)

    def close(self) -> None:
        """The window closes: nothing begins any more, what runs is stopped."""
        self._closed = True
        self._work.close()
        for entry in self.entries:
            entry.cancelled.set()
        self._keep()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        if self._closed or self.running is not None:
            return
        entry = next((each for each in self.entries if each.state is DownloadState.WAITING), None)
        if entry is not None:
            entry.state = DownloadState.RUNNING
            self._samples.clear()
            self.changed.emit(entry)
            self._work.start(
                lambda report, cancelled: download(entry.id, entry.revision, report=report, cancelled=cancelled),
                entry.cancelled,
            )

    def _on_ended(self, outcome: Outcome) -> None:
        entry = self.running
        if entry is None:
            return
        entry.error, entry.folder, entry.rate = outcome.error, outcome.result, 0.0
        if outcome.cancelled:
            entry.state = DownloadState.STOPPED
        elif outcome.error:
            entry.state = DownloadState.FAILED
        else:
            entry.state, entry.done = DownloadState.DONE, entry.total
            self.entries.remove(entry)
        if self._closed:
            return
        self._keep()
        self.changed.emit(entry)
        if entry.state is DownloadState.DONE:
            self.finished.emit(entry)
        self._next()

    def _on_progress(self, status: LoadStatus) -> None:
        entry = self.running
        if entry is None:
            return
        entry.stage, now = status.stage, time.perf_counter()
        if status.total:
            entry.done, entry.total = status.done, status.total
            self._samples.append((now, status.done))
            while len(self._samples) > 2 and now - self._samples[0][0] > RATE_SECONDS:
                self._samples.popleft()
            begun, first = self._samples[0]
            if now - begun >= SETTLED:
                entry.rate = max(0.0, (status.done - first) / (now - begun))
        self.changed.emit(entry)

    def _keep(self) -> None:
        names = ("id", "revision", "done", "total")
        storage.keep(KEY, [{name: getattr(each, name) for name in names} for each in self.entries])


def _kept() -> list[Download]:
    """Those that an earlier start has left unfinished, stopped; what cannot be read any more is left out."""
    try:
        return [
            Download(str(k["id"]), str(k["revision"]), int(k["total"]), DownloadState.STOPPED, int(k["done"]))
            for k in storage.kept_list(KEY)
            if 0 <= k["done"] <= k["total"] or not k["total"]
        ]
    except (ValueError, TypeError, KeyError, OverflowError):
        return []
