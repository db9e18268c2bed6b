"""Downloads from the hub: one at a time, the others wait; what was stopped can go on, also after the next start."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from app import storage
from app.session.session import Session
from engine import InvalidInput
from engine.checkpoints import download
from engine.jobs import LoadCancelled, LoadProgress

KEY = "models/downloads"
LOOK_MS = 200
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
        self._session = session
        self._closed = False
        self._latest: LoadProgress | None = None
        self._samples: deque[tuple[float, int]] = deque()
        self._look = QTimer(self)
        self._look.setInterval(LOOK_MS)
        self._look.timeout.connect(self._on_look)
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
        self._look.stop()
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
            self._latest = None
            self._samples.clear()
            self._look.start()
            self.changed.emit(entry)
            self._session.start(self._fetch(entry))

    async def _fetch(self, entry: Download) -> None:
        def on_progress(progress: LoadProgress) -> None:
            self._latest = progress  # called on the fetching thread; the timer reads the latest

        try:
            entry.folder = await self._session.off_thread(
                lambda: download(entry.id, entry.revision, report=on_progress, cancelled=entry.cancelled)
            )
        except (LoadCancelled, asyncio.CancelledError):
            entry.state = DownloadState.STOPPED
        except InvalidInput as error:
            entry.state, entry.error = DownloadState.FAILED, str(error)
        except Exception as error:  # whatever it was, the person is told and the window goes on
            entry.state, entry.error = DownloadState.FAILED, f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            entry.state, entry.done = DownloadState.DONE, entry.total
        if self._closed:
            return
        self._on_look()
        self._look.stop()
        entry.rate = 0.0
        if entry.state is DownloadState.DONE:
            self.entries.remove(entry)
        self._keep()
        self.changed.emit(entry)
        if entry.state is DownloadState.DONE:
            self.finished.emit(entry)
        self._next()

    def _on_look(self) -> None:
        entry, progress = self.running, self._latest
        if entry is None or progress is None:
            return
        entry.stage, now = progress.stage, time.perf_counter()
        if progress.total:
            entry.done, entry.total = progress.done, progress.total
            self._samples.append((now, progress.done))
            while len(self._samples) > 2 and now - self._samples[0][0] > RATE_SECONDS:
                self._samples.popleft()
            begun, first = self._samples[0]
            if now - begun >= SETTLED:
                entry.rate = max(0.0, (progress.done - first) / (now - begun))
        self.changed.emit(entry)

    def _keep(self) -> None:
        kept = [
            {"id": each.id, "revision": each.revision, "done": each.done, "total": each.total}
            for each in self.entries
        ]  # fmt: skip
        storage.settings().setValue(KEY, json.dumps(kept))


def _kept() -> list[Download]:
    """Those that an earlier start has left unfinished, stopped; what cannot be read any more is left out."""
    try:
        kept = json.loads(str(storage.settings().value(KEY, "[]")))
        return [
            Download(str(k["id"]), str(k["revision"]), int(k["total"]), DownloadState.STOPPED, int(k["done"]))
            for k in kept
            if 0 <= k["done"] <= k["total"] or not k["total"]
        ]
    except (ValueError, TypeError, KeyError, OverflowError):
        return []
