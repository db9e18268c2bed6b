"""Races and runs in files, read off the window's thread to be shown on the Compare page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.session.engine_lease import Report
from app.session.load_progress import LoadStatus
from app.session.long_work import LongWork, Outcome
from app.session.session import Session
from app.ui.banner import Banner
from app.words import sentence
from engine.compare import load_race
from engine.jobs import LoadProgress
from engine.library import read_side_by_side

RUNS, RECORDS = "runs", "records"  # what is counted while a race, or several runs, are read
Read = Callable[[Callable[[int, int], None], threading.Event], Any]


class SavedRaces(QObject):
    """One reading at a time: what is being read is given up for the next. `notice` says how far it is."""

    race_read = Signal(object, str, object)  # RaceResult, what was asked, Path
    runs_read = Signal(object)  # SideBySide

    def __init__(self, session: Session, notice: Banner, parent: QObject) -> None:
        super().__init__(parent)
        self._session, self._notice = session, notice
        self._work: LongWork | None = None

    @property
    def reading(self) -> bool:
        return self._work is not None

    def read_race(self, path: Path) -> None:
        def read(tell: Callable[[int, int], None], cancelled: threading.Event) -> object:
            return load_race(path, tell, cancelled)

        self._begin(read, path.stem, RUNS, lambda result: self.race_read.emit(*result, path))

    def read_runs(self, paths: Sequence[Path]) -> None:
        """As the lanes of one race."""

        def read(tell: Callable[[int, int], None], cancelled: threading.Event) -> object:
            return read_side_by_side(paths, tell, cancelled)

        self._begin(read, f"{len(paths)} runs", RECORDS, self.runs_read.emit)

    def close(self) -> None:
        """Ends the reading under way."""
        if self._work is not None:
            self._work.close()
            self._work = None
            self._notice.hide()

    def _begin(self, read: Read, name: str, noun: str, take: Callable[[Any], object]) -> None:
        self.close()
        work = self._work = LongWork(self._session, self)

        def say(status: LoadStatus) -> None:
            words = f"{status.done:,} of {status.total:,} {noun}"
            self._notice.tell("info", f"Reading {name}", words, action=("Cancel", self.close))

        def go(report: Report, cancelled: threading.Event) -> object:
            return read(lambda done, total: report(LoadProgress("reading", done, total)), cancelled)

        work.progressed.connect(say)
        work.ended.connect(lambda outcome: self._on_ended(work, noun, outcome, take))
        work.ended.connect(work.deleteLater)
        work.start(go)

    def _on_ended(self, work: LongWork, noun: str, outcome: Outcome, take: Callable[[Any], object]) -> None:
        if work is not self._work:
            return  # it was given up
        self._work = None
        self._notice.hide()
        if outcome.error:
            what = "The race was" if noun == RUNS else "The runs were"
            self._notice.tell("error", f"{what} not opened", sentence(outcome.error))
        elif not outcome.cancelled:
            take(outcome.result)
