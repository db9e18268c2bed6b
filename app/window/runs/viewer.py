"""The window where no engine is installed: it shows runs and the tour, and says what it lacks."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QWidget

from app import storage
from app.language import tr
from app.ui.banner import Banner
from app.window.runs.saved_runs import SavedRuns
from app.words import sentence
from engine.compare import RACE_SUFFIX
from engine.jobs import engine_missing
from engine.trace import RUN_SUFFIX

TITLE = tr("Runs, races and the tour are replayed here")
RUNS = f"*{RUN_SUFFIX}", f"*{RACE_SUFFIX}"


class Viewer:
    """`show` opens a run or race, `all_runs` shows what there is. Where models can be run, it does nothing."""

    def __init__(
        self, banner: Banner, runs: SavedRuns, show: Callable[[str | Path], object], all_runs: Callable[[], object]
    ) -> None:
        self._banner, self._runs, self._show, self._all_runs = banner, runs, show, all_runs
        self.words = sentence(engine_missing())

    def restrict(self, *off: QAction | QWidget) -> None:
        """What runs models is off, and says why."""
        for each in off if self.words else ():
            each.setEnabled(False)
            each.setToolTip(self.words)

    def _ask(self) -> None:
        self._runs.ask(self._banner, self._show)

    def begin(self) -> bool:
        """Shows the run that lies beside the program, or all where there are several; False where models can be
        run."""
        if not self.words:
            return False
        self._banner.tell("info", TITLE, f"{self.words}.", action=(tr("Open a run …"), self._ask))
        folder = storage.beside()
        beside = sorted(path for pattern in RUNS for path in folder.glob(pattern)) if folder is not None else []
        if len(beside) == 1:
            self._show(beside[0])
        elif beside:
            self._all_runs()
        return True
