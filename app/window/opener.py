"""Whatever can be opened, handed to who has use for it."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QWidget

from app.language import tr
from app.play.composer import ENDINGS
from app.ui.sheets.ask_path import ask_path
from app.window.pages import Pages
from app.window.runs.saved_runs import SavedRuns
from engine.compare import RACE_SUFFIX
from engine.trace import RUN_SUFFIX


class Opener:
    """`open_race` takes the file of a race; `otherwise` what the page on show has no use for."""

    def __init__(
        self, pages: Pages, runs: SavedRuns, open_race: Callable[[Path], object], otherwise: Callable[[Path], object]
    ) -> None:
        self._pages, self._runs, self._open_race, self._otherwise = pages, runs, open_race, otherwise

    def open(self, path: str | Path) -> None:
        """Loads a model folder (or that of its config.json), shows a saved run or race, or takes prompts from a file.

        On the Compare page, a file of prompts is a workload; on the Models page, a folder is listed and looked at.
        """
        path = Path(path)
        if path.suffix == RUN_SUFFIX:
            self._runs.open(path)
            return
        if path.suffix == RACE_SUFFIX:
            self._open_race(path)
            return
        if path.name == "config.json" or path.suffix == ".safetensors":
            path = path.parent
        if not self._pages.current.take_file(path):
            self._otherwise(path)

    def drop(self, event: QDropEvent) -> None:
        """The first of the files that are dropped."""
        event.acceptProposedAction()
        for url in event.mimeData().urls()[:1]:
            self.open(url.toLocalFile())

    def ask(self, host: QWidget) -> None:
        """Asks for a file, by the page on show or in a dialog of `host`."""
        if self._pages.current.ask_file(self.open):
            return
        title = tr("Open a model (its config.json), a run, a race or a file of prompts")
        endings = f"*{RUN_SUFFIX} *{RACE_SUFFIX} {ENDINGS}"
        filters = tr("Models, runs and prompts ({endings})", endings=endings), tr("All files (*)")
        ask_path(host, "open_dialog", title, Path(), self.open, filters)
