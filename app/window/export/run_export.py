"""Export of the run on show, or of the race: asked for with a name, written off the window's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog, QWidget

from app import storage
from app.language import tr
from app.play.page import PlayPage
from app.playback.bridge import Bridge
from app.session.loading.engine_lease import Report
from app.session.session import Session
from app.ui.banner import Banner
from app.ui.export import FOLDER
from app.window.export.figure_export import FigureExport
from app.window.export.file_work import FileWork
from app.window.runs.saved_runs import SavedRuns
from app.words import export_words, sentence
from engine import InvalidInput
from engine.export import KINDS, Source, citation, commands, export
from engine.jobs import LoadProgress

if TYPE_CHECKING:
    from app.compare.race.session import RaceSession


class RunExport(QObject):
    """`race` gives the race that is on show, None where no race is."""

    def __init__(
        self,
        session: Session,
        bridge: Bridge,
        page: PlayPage,
        runs: SavedRuns,
        banner: Banner,
        race: Callable[[], RaceSession | None],
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._session, self._bridge, self._runs, self._banner = session, bridge, runs, banner
        self._race, self._window = race, parent
        self.files = FileWork(session, banner, self)
        self.figures = FigureExport(self.source, self._tell_nothing, self.files, page, parent)

    def actions(self) -> list[tuple[str, Callable[[], None]]]:
        """The words of each kind, and what asks for its file; and what is copied as text."""
        kinds = [(tr("Export the {kind} …", kind=export_words(what)), partial(self.ask, what)) for what in KINDS]
        again = tr("The commands that make the run again were copied"), lambda source: "\n".join(commands(source))
        cited = tr("A citation of the run, as BibTeX, was copied"), citation
        return [
            *kinds,
            *self.figures.actions(),
            (tr("Copy the commands that make the run again"), partial(self.copy, *again)),
            (tr("Copy a citation of the run"), partial(self.copy, *cited)),
        ]

    def _tell_nothing(self, why: str) -> None:
        self._banner.tell("info", tr("There is nothing to export"), sentence(why))

    def copy(self, done: str, text: Callable[[Source], str]) -> None:
        """Puts what is told of the run on show on the clipboard; `done` is what the person is told then."""
        try:
            QGuiApplication.clipboard().setText(text(self.source()))
        except InvalidInput as error:
            self._banner.tell("info", tr("There is nothing to copy"), sentence(str(error)))
        else:
            self._banner.tell("info", done, "", passes=True)

    def ask(self, what: str) -> None:
        """Asks where to write what is on show; the file's ending says how, where the kind leaves a choice."""
        try:
            source = self.source()
        except InvalidInput as error:
            self._tell_nothing(str(error))
            return
        self._ask(what, source, Path(source.file or source.title.replace("/", "-")).stem)

    def ask_of(self, what: str, paths: Sequence[Path]) -> None:
        """The same of files: a race's, a run's, or those of several runs."""
        self._ask(what, paths, paths[0].stem if len(paths) == 1 else tr("{count} runs", count=len(paths)))

    def _ask(self, what: str, source: Source | Sequence[Path], stem: str) -> None:
        kind, words = KINDS[what], export_words(what)
        title = tr("Export: {kind}", kind=words)
        dialog = QFileDialog(self._window, title, str(storage.settings().value(FOLDER, "")))
        dialog.setObjectName("run_export_dialog")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters([f"{sentence(words)} (*{ending})" for ending in kind.endings])
        dialog.setDefaultSuffix(kind.endings[0][1:])
        dialog.selectFile(f"{stem}{kind.endings[0]}")
        dialog.fileSelected.connect(lambda path: self.write(source, Path(path), what))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def source(self) -> Source:
        """What is on show. Raises InvalidInput where nothing is."""
        race = self._race()
        if race is not None:
            if race.result is None:
                raise InvalidInput(tr("no race is over yet; run one first"))
            return Source.of_race(race.result, file=race.file.name if race.file is not None else "")
        file = self._runs.path or self._session.run_file
        named = (file.stem, file.name) if file is not None else ("", "")
        return Source.of_trace(self._bridge.trace, *named)

    def write(self, source: Source | Sequence[Path], path: Path, what: str) -> None:
        """Writes the file, of what is in memory or in other files; the banner says how far that is, and what came of
        it."""

        def work(report: Report, cancelled: threading.Event) -> None:
            def tell(done: int, total: int) -> None:
                report(LoadProgress("writing", done, total))

            read = source if isinstance(source, Source) else Source.read(source, tell, cancelled)
            export(read, path, what, tell, cancelled)

        self.files.write(path, work)
