"""Export of the run on show, or of the race: asked for with a name, written off the window's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QWidget

from app import storage
from app.playback.bridge import Bridge
from app.session.engine_lease import Report
from app.session.load_progress import LoadStatus
from app.session.long_work import LongWork, Outcome
from app.session.session import Session
from app.ui.banner import Banner
from app.ui.export import FOLDER
from app.window.saved_runs import SavedRuns
from app.words import sentence
from engine import InvalidInput
from engine.export import KINDS, Source, export
from engine.jobs import LoadProgress

if TYPE_CHECKING:
    from app.compare.race.session import RaceSession


class RunExport(QObject):
    """`race` gives the race that is on show, None where no race is."""

    def __init__(
        self,
        session: Session,
        bridge: Bridge,
        runs: SavedRuns,
        banner: Banner,
        race: Callable[[], RaceSession | None],
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._session, self._bridge, self._runs, self._banner = session, bridge, runs, banner
        self._race, self._window = race, parent
        self._path = Path()
        self._work = LongWork(session, self)
        self._work.progressed.connect(self._on_progress)
        self._work.ended.connect(self._on_ended)

    def actions(self) -> list[tuple[str, Callable[[], None]]]:
        """The words of each kind, and what asks for its file."""
        return [(f"Export the {kind.words} …", partial(self.ask, what)) for what, kind in KINDS.items()]

    def ask(self, what: str) -> None:
        """Asks where to write what is on show; the file's ending says how, where the kind leaves a choice."""
        try:
            source = self._source()
        except InvalidInput as error:
            self._banner.tell("info", "There is nothing to export", sentence(str(error)))
            return
        self._ask(what, source, Path(source.file or source.title.replace("/", "-")).stem)

    def ask_of(self, what: str, paths: Sequence[Path]) -> None:
        """The same of files: a race's, a run's, or those of several runs."""
        self._ask(what, paths, paths[0].stem if len(paths) == 1 else f"{len(paths)} runs")

    def _ask(self, what: str, source: Source | Sequence[Path], stem: str) -> None:
        kind = KINDS[what]
        dialog = QFileDialog(self._window, f"Export: {kind.words}", str(storage.settings().value(FOLDER, "")))
        dialog.setObjectName("run_export_dialog")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters([f"{sentence(kind.words)} (*{ending})" for ending in kind.endings])
        dialog.setDefaultSuffix(kind.endings[0][1:])
        dialog.selectFile(f"{stem}{kind.endings[0]}")
        dialog.fileSelected.connect(lambda path: self.write(source, Path(path), what))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _source(self) -> Source:
        """What is on show. Raises InvalidInput where nothing is."""
        race = self._race()
        if race is not None:
            if race.result is None:
                raise InvalidInput("no race is over yet; run one first")
            return Source.of_race(race.result, file=race.file.name if race.file is not None else "")
        file = self._runs.path or self._session.run_file
        named = (file.stem, file.name) if file is not None else ("", "")
        return Source.of_trace(self._bridge.trace, *named)

    def write(self, source: Source | Sequence[Path], path: Path, what: str) -> None:
        """Writes the file, of what is in memory or in other files; the banner says how far that is, and what came of
        it."""
        if self._work.running:
            words = f"{self._path.name} is written; export the next one when that is done."
            self._banner.tell("info", "An export is under way", words, action=("Cancel it", self._work.cancel))
            return
        self._path = path
        storage.settings().setValue(FOLDER, str(path.parent))

        def work(report: Report, cancelled: threading.Event) -> None:
            def tell(done: int, total: int) -> None:
                report(LoadProgress("writing", done, total))

            read = source if isinstance(source, Source) else Source.read(source, tell, cancelled)
            export(read, path, what, tell, cancelled)

        self._tell("")
        self._work.start(work)

    def _tell(self, words: str) -> None:
        self._banner.tell("info", f"Writing {self._path.name}", words, action=("Cancel", self._work.cancel))

    def _on_progress(self, status: LoadStatus) -> None:
        self._tell(f"{status.done:,} of {status.total:,} records")

    def _on_ended(self, outcome: Outcome) -> None:
        if outcome.error:
            self._banner.tell("error", f"{self._path.name} was not written", sentence(outcome.error))
        elif outcome.cancelled:
            self._banner.hide()
        else:
            folder = QUrl.fromLocalFile(str(self._path.parent))
            show = ("Show the folder", lambda: QDesktopServices.openUrl(folder))
            self._banner.tell("info", f"{self._path.name} was written", f"To {self._path.parent}.", action=show)
