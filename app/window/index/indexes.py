"""The indexes of saved runs: opened at once, made in the background by a child process."""

import sys
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app import storage
from app.session.long_work import LongWork, Outcome
from app.session.session import Session
from app.window.index.readers import indexes
from engine import Trace
from engine.jobs import run_job


class TraceIndexes(QObject):
    """A run that the session has written gets one when its file is closed, any other when it is asked for; one after
    another, as nothing waits for them. What cannot be made is left out: the run is read as if there were none."""

    built = Signal(object)  # Path of a run that has one now

    def __init__(self, session: Session, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._work: LongWork | None = None
        self._waiting: list[Path] = []
        session.file_written.connect(self.ask)

    def open(self, path: Path) -> Trace | None:
        """The run of a file, whole; None where it must be read. From any thread; takes a tenth of a second or two."""
        return indexes(storage.indexes()).open(path)

    @property
    def busy(self) -> bool:
        """Whether one is being made."""
        return bool(self._waiting)

    def file(self, path: Path) -> Path:
        """Where a run's index is, or would be."""
        return indexes(storage.indexes()).file(path)

    def drop(self, path: Path) -> None:
        """The run's index is none any more."""
        indexes(storage.indexes()).drop(self.file(path))

    def ask(self, path: Path) -> None:
        """Has an index made of a long run, unless it has one, or there is no process to make it."""
        if path not in self._waiting and not getattr(sys, "frozen", False) and not self.file(path).exists():
            self._waiting.append(path)
            self._next()

    def close_down(self) -> None:
        """The window closes: what is under way is given up."""
        self._waiting.clear()
        if self._work is not None:
            self._work.close()

    def _next(self) -> None:
        if self._work is not None or not self._waiting:
            return
        path = self._waiting[0]
        work = self._work = LongWork(self._session, self)
        work.ended.connect(lambda outcome: self._on_ended(work, path, outcome))
        told = {"run": str(path), "indexes": str(storage.indexes())}
        work.start(lambda report, cancelled: run_job("app.window.index.job:build", told, report, cancelled, light=True))

    def _on_ended(self, work: LongWork, path: Path, outcome: Outcome) -> None:
        work.deleteLater()
        self._work = None
        if self._waiting:
            self._waiting.pop(0)
            if outcome.result is not None:
                self.built.emit(path)
            self._next()
