"""Figures for a page, and animations: asked for in a panel's menu, drawn by a process of their own."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog, QMenu, QWidget

from app import storage
from app.figure.job import draw
from app.figure.subject import RACE, Figure, Film, Subject, check_video
from app.figure.width import WIDTHS, width_words
from app.inside.look import Look
from app.inside.panel import InsightPanel
from app.language import tr
from app.play.page import PlayPage
from app.session.loading.engine_lease import Report
from app.ui.export import FOLDER
from app.ui.look import theme
from app.window.export.file_work import FileWork
from app.words import sentence
from engine import InvalidInput, save_trace
from engine.compare import RACE_SUFFIX, save_race
from engine.export import Source
from engine.trace import RUN_SUFFIX

if TYPE_CHECKING:
    from app.compare.page import ComparePage

FIGURES = {".pdf": tr("PDF, its fonts in it"), ".svg": tr("SVG, its text as outlines"), ".png": "PNG"}
FILMS = {".webm": "WebM", ".gif": "GIF", ".webp": "WebP"}


class Shown(NamedTuple):
    """A panel of what is on show."""

    source: Source
    panel: str
    look: Look = Look()
    lane: int | None = None


class FigureExport(QObject):
    """Adds its menu to the panels' own. `source` gives what is on show, or raises InvalidInput; `tell_nothing` says why
    nothing is written."""

    def __init__(
        self,
        source: Callable[[], Source],
        tell_nothing: Callable[[str], None],
        files: FileWork,
        play: PlayPage,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._source, self._tell_nothing, self._files, self._window = source, tell_nothing, files, window
        self._compare: ComparePage | None = None
        play.panel_built.connect(self.offer)

    def offer_race(self, page: ComparePage) -> None:
        """Of the race, and of its lanes' panels."""
        self._compare = page
        page.panel_built.connect(self.offer)
        self._add(page.export, lambda: Shown(self._source(), RACE))

    def offer(self, panel: InsightPanel) -> None:
        self._add(panel.menu, partial(self._of_panel, panel))

    def actions(self) -> list[tuple[str, Callable[[], None]]]:
        """Of the run or race on show, for the window's menu."""
        return [(tr("Export an animation …"), partial(self.ask_film, self._whole))]

    def _add(self, menu: QMenu, shown: Callable[[], Shown]) -> None:
        menu.addSeparator()
        figures = menu.addMenu(tr("Figure for a paper"))
        for name in WIDTHS:
            words = f"{sentence(width_words(name))} …"
            figures.addAction(words).triggered.connect(lambda checked=False, name=name: self.ask_figure(shown, name))
        menu.addAction(tr("Animation …")).triggered.connect(lambda checked=False: self.ask_film(shown))

    def _whole(self) -> Shown:
        source = self._source()
        return Shown(source, RACE if source.race is not None else "timeline")

    def _of_panel(self, panel: InsightPanel) -> Shown:
        race = self._compare.race if self._compare is not None else None
        lane = next((lane.index for lane in race.lanes if lane.scope is panel.scope), None) if race else None
        return Shown(self._source(), panel.objectName(), panel.look(), lane)

    # -- asking ---------------------------------------------------------------------------------------------------

    def ask_figure(self, shown: Callable[[], Shown], width: str) -> None:
        self._ask(shown, FIGURES, lambda subject: Figure(subject, width))

    def ask_film(self, shown: Callable[[], Shown]) -> None:
        def film(subject: Subject) -> Film:
            return Film(subject, light=not theme.current().dark)

        self._ask(shown, FILMS, film, check_video)

    def _ask(
        self,
        shown: Callable[[], Shown],
        kinds: dict[str, str],
        make: Callable[[Subject], Figure | Film],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Asks for a name; the file's ending says how it is written."""
        try:
            check()
            what = shown()
        except InvalidInput as error:
            self._tell_nothing(str(error))
            return
        dialog = QFileDialog(self._window, tr("Export"), str(storage.settings().value(FOLDER, "")))
        dialog.setObjectName("figure_dialog")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters([f"{words} (*{ending})" for ending, words in kinds.items()])
        dialog.setDefaultSuffix(next(iter(kinds))[1:])
        dialog.filterSelected.connect(lambda chosen: dialog.setDefaultSuffix(chosen[chosen.index("*.") + 2 : -1]))
        dialog.selectFile(f"{what.panel}{next(iter(kinds))}")
        dialog.fileSelected.connect(lambda path: self.write(what, Path(path), make, tuple(kinds)))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    # -- writing --------------------------------------------------------------------------------------------------

    def write(
        self, what: Shown, path: Path, make: Callable[[Subject], Figure | Film], endings: tuple[str, ...]
    ) -> None:
        """Writes the file from a copy of what is on show, which may go on meanwhile."""
        if path.suffix not in endings:
            self._tell_nothing(
                tr("{name}: its name must end with {endings}", name=repr(path.name), endings=", ".join(endings))
            )
            return

        def work(report: Report, cancelled: threading.Event) -> None:
            with tempfile.TemporaryDirectory() as folder:
                draw(make(_copied(what, Path(folder))), path, report, cancelled)

        self._files.write(path, work)


def _copied(what: Shown, folder: Path) -> Subject:
    """The subject, in a file of its own."""
    source = what.source
    if source.race is not None:
        file = folder / f"race{RACE_SUFFIX}"
        save_race(source.race, file)
    else:
        file = folder / f"run{RUN_SUFFIX}"
        save_trace(source.runs[0].trace, file)
    return Subject(str(file), what.panel, what.lane, what.look, source.title, source.file).checked()
