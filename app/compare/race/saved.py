"""Races and runs in files, read off the window's thread to be shown on the Compare page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.language import tr
from app.session.loading.engine_lease import Report
from app.session.loading.progress import LoadStatus
from app.session.long_work import LongWork, Outcome
from app.session.session import Session
from app.ui.banner import Banner
from app.words import sentence
from engine.compare import load_race
from engine.jobs import LoadProgress
from engine.library import read_side_by_side

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

        def words(done: int, total: int) -> str:
            return tr("{done:,} of {total:,} runs", done=done, total=total)

        failed = tr("The race was not opened")
        self._begin(read, path.stem, words, failed, lambda result: self.race_read.emit(*result, path))

    def read_runs(self, paths: Sequence[Path]) -> None:
        """As the lanes of one race."""

        def read(tell: Callable[[int, int], None], cancelled: threading.Event) -> object:
            return read_side_by_side(paths, tell, cancelled)

        def words(done: int, total: int) -> str:
            return tr("{done:,} of {total:,} records", done=done, total=total)

        name = tr("{count} runs", count=len(paths))
        self._begin(read, name, words, tr("The runs were not opened"), self.runs_read.emit)

    def close(self) -> None:
        """Ends the reading under way."""
        if self._work is not None:
            self._work.close()
            self._work = None
            self._notice.hide()

    def _begin(
        self, read: Read, name: str, words: Callable[[int, int], str], failed: str, take: Callable[[Any], object]
    ) -> None:
        """Reads what is called `name`, telling in `words` how far it is, and `failed` where it cannot be read."""
        self.close()
        work = self._work = LongWork(self._session, self)

        def say(status: LoadStatus) -> None:
            title, cancel = tr("Reading {name}", name=name), (tr("Cancel"), self.close)
            self._notice.tell("info", title, words(status.done, status.total), action=cancel)

        def go(report: Report, cancelled: threading.Event) -> object:
            return read(lambda done, total: report(LoadProgress("reading", done, total)), cancelled)

        work.progressed.connect(say)
        work.ended.connect(lambda outcome: self._on_ended(work, failed, outcome, take))
        work.ended.connect(work.deleteLater)
        work.start(go)

    def _on_ended(self, work: LongWork, failed: str, outcome: Outcome, take: Callable[[Any], object]) -> None:
        if work is not self._work:
            return  # it was given up
        self._work = None
        self._notice.hide()
        if outcome.error:
            self._notice.tell("error", failed, sentence(outcome.error))
        elif not outcome.cancelled:
            take(outcome.result)
