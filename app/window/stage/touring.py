"""Tours in the window: how one begins, its keys, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QMainWindow, QMenu

from app.language import shipped, tr
from app.session.session import SessionState
from app.stage.caption_bar import CaptionBar
from app.stage.scene import Scene, in_words
from app.stage.scene_file import read_tour, shipped_tour
from app.stage.stage import Stage
from app.stage.tour_card import TourCard
from app.ui.banner import Banner
from app.window.runs.saved_runs import SavedRuns
from engine import InvalidInput, Trace

if TYPE_CHECKING:
    from app.stage.tour import Tour

EVERYWHERE = Qt.ShortcutContext.ApplicationShortcut  # the speaker's notes too
KEYS = (("PgDown", 1), ("PgUp", -1))


def spoken(scenes: Sequence[Scene]) -> tuple[Scene, ...]:
    """The scenes in the window's language, as far as a catalog has their words."""
    return tuple(in_words(scene, shipped) for scene in scenes)


class Touring(QObject):
    """One tour at a time, in `bar` and on the stage. Page keys are its own while it is on."""

    begun = Signal()  # a tour, or, where `tour` is None again, what was there before it

    def __init__(self, stage: Stage, runs: SavedRuns, banner: Banner, window: QMainWindow) -> None:
        super().__init__(window)
        self._stage, self._runs, self._banner = stage, runs, banner
        self.bar = CaptionBar()
        self.bar.hide()
        self.tour: Tour | None = None
        self.recorded = False  # whether scenes are replayed from their recordings, wherever they could be played
        self._menu = QMenu(tr("Scenes"), window)
        self.card = TourCard(stage.play.wall.cards, stage.bridge, self.ask)
        self._keys = [QShortcut(QKeySequence(key), window, context=EVERYWHERE) for key, _ in KEYS]
        for key, (_, by) in zip(self._keys, KEYS, strict=True):
            key.activated.connect(lambda by=by: self.bar.moved.emit(by))
            key.setEnabled(False)

    @property
    def on(self) -> bool:
        return self.tour is not None and not self.tour.leaving

    def ask(self, number: int = 0) -> None:
        """The tour that is shipped, from this scene on."""
        try:
            self.take(read_tour(), number)
        except InvalidInput as error:
            self._banner.tell("error", tr("There is no tour"), str(error))

    def go(self, number: int) -> None:
        """That scene of the tour that is on, or of the one that is shipped."""
        if self.tour is not None:
            self.tour.go(number)
        else:
            self.ask(number)

    @property
    def known(self) -> int:
        """How many scenes there are to go to."""
        return len(self.tour.scenes) if self.tour is not None else len(read_tour())

    def scenes(self) -> QMenu:
        """A menu with each scene that is shipped: those of the tour, and those that show one thing by itself."""
        if self._menu.isEmpty():
            for number, scene in enumerate(spoken(read_tour())):
                action = self._menu.addAction(tr("Scene {number}: {title}", number=number + 1, title=scene.title))
                action.triggered.connect(lambda checked=False, number=number: self.ask(number))
            for scene in spoken(read_tour(shipped_tour() / "shown")):
                action = self._menu.addAction(tr("Show me: {title}", title=scene.title))
                action.triggered.connect(lambda checked=False, scene=scene: self.take([scene]))
        return self._menu

    def take(self, scenes: Sequence[Scene], number: int = 0) -> None:
        """Begins a tour at a scene, or goes there in the one that is on; not while something runs that it would end."""
        stage, scenes = self._stage, spoken(scenes)
        if self.tour is not None:
            if self.tour.scenes == scenes:
                self.tour.go(number)
            return
        if self._runs.running or stage.session.state is SessionState.LEASED:
            stop = (tr("Stop them"), stage.session.stop) if self._runs.running else None
            self._banner.tell(
                "warning", tr("Something is running"), tr("The tour begins when it is over."), action=stop
            )
            return
        from app.stage.tour import Tour

        self._runs.cancel()
        self._runs.close()
        self._banner.hide()
        tour = self.tour = Tour(scenes, stage, self.bar, self, recorded=self.recorded)
        tour.texts_back.connect(self._on_texts_back)
        tour.ended.connect(self._on_ended)
        for key in self._keys:
            key.setEnabled(True)
        self.begun.emit()
        tour.go(number)

    def leave(self) -> None:
        """What the person had comes back."""
        if self.tour is not None:
            self.tour.leave()

    def close_down(self) -> None:
        """The window closes."""
        if self.tour is not None:
            self.tour.close_down()

    def _on_texts_back(self, trace: Trace) -> None:
        """What the engine had answered before the tour, until its next prompt."""
        self._stage.bridge.show(trace)
        self._stage.bridge.show(self._stage.session.trace or Trace(), keep_until_used=True)

    def _on_ended(self) -> None:
        if self.tour is not None:
            self.tour.deleteLater()
        self.tour = None
        self.begun.emit()
        for key in self._keys:
            key.setEnabled(False)
