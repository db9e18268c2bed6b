"""A tour: scenes one after another, each played live, then once more with what is pointed at in the light."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from PySide6.QtCore import QObject, QTimer, Signal

from app.language import tr
from app.stage.caption_bar import CaptionBar
from app.stage.figures import filled
from app.stage.kept import Kept
from app.stage.race_show import RaceShow
from app.stage.run_show import RunShow
from app.stage.scene import Scene, point_at
from app.stage.show import Show
from app.stage.spotlight import Spotlight, in_sight
from app.stage.stage import Stage
from app.ui.layout.boxes import steady
from app.words import recorded_words, sentence
from engine.jobs import engine_missing

TICK_MS = 50
NOWHERE = -2  # no point, and not the time before the first either
NEAR = 1e-6  # of a share: what rounding may take from a moment
LIVE = tr("live: it is being played now")
AGAIN = tr("played once more, slowly")
READING = tr("its recording is being read")
HELD = tr("Space plays on")
TRYING = tr("the controls are yours")


class Tour(QObject):
    """Plays one scene at a time, live; as it was recorded where that is asked for (`recorded`) or nothing else can be.
    `replays` False goes to a scene's last point at once, without playing it again."""

    ended = Signal()  # the person has back what was there before
    scene_begun = Signal()
    pointed = Signal()  # another point of the scene, or none
    texts_back = Signal(object)  # Trace of the texts that were there, once their engine is too

    def __init__(
        self, scenes: Sequence[Scene], stage: Stage, bar: CaptionBar, parent: QObject, *, recorded: bool = False
    ) -> None:
        super().__init__(parent)
        self._recorded, self._source = recorded, ""  # where and when the scene on show was recorded, in words
        self.scenes, self._stage, self._bar = tuple(scenes), stage, bar
        self.replays = True
        self.number = -1  # of the scene on show, counted from 0
        self.live = False  # the scene's run or race is under way
        self.trying = self.leaving = False
        self.spotlight = Spotlight(stage.pages)
        self.show: Show | None = None
        self._kept = Kept.of(stage)
        self._wanted: int | None = None
        self._task: asyncio.Task[None] | None = None
        self.due: list[float] = []  # when each point of the scene is due, as shares of what was played
        self.told: list[str] = []  # the words of each, with the figures of what was played
        self._pointed, self._held = NOWHERE, False
        self._timer = QTimer(self, interval=TICK_MS)
        self._timer.timeout.connect(self.tick)
        bar.moved.connect(self.move)
        bar.tried.connect(self.try_it)
        bar.toggled.connect(self.toggle)
        bar.left.connect(self.leave)

    @property
    def scene(self) -> Scene:
        return self.scenes[self.number]

    @property
    def over(self) -> bool:
        """Whether the scene on show stands at its last point."""
        return self.show is not None and not self.live and self._held

    @property
    def words(self) -> str:
        """What is said of the point that is lit; "" where none is."""
        return self.told[self._pointed] if self._pointed >= 0 else ""

    # -- what a person does ---------------------------------------------------------------------------------------

    def go(self, number: int) -> None:
        """Shows this scene from its beginning, counted from 0; what runs is given up."""
        if 0 <= number < len(self.scenes) and not self.leaving:
            self._wanted = number
            self._begin()

    def move(self, by: int) -> None:
        self.go((self.number if self._wanted is None else self._wanted) + by)

    def try_it(self, on: bool) -> None:
        """Hands over the controls, or plays the scene again."""
        if not on:
            self.go(self.number)
        elif self.show is not None and not self.live:
            self.trying = True
            self.spotlight.put_out()
            self._bar.say_trying(True)
            self._bar.point(sentence(engine_missing()))
            self._say(TRYING)
            self.show.hand_over()

    def toggle(self) -> None:
        """Plays on, or pauses."""
        if self.show is not None and not self.live:
            self.show.toggle()

    def leave(self) -> None:
        """Ends the tour; what the person had comes back."""
        if not self.leaving:
            self.leaving, self._wanted = True, None
            self._close()
            self._begin()

    def close_down(self) -> None:
        """The window closes: panels and page are as they were before the tour."""
        if not self.leaving:
            self.leaving, self._wanted = True, None
            self._close()

    # -- the scenes -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._task is None:
            self._task = self._stage.session.start(self._perform())
            self._timer.start()

    def _given_up(self) -> bool:
        return self._wanted is not None or self.leaving or self._stage.session.closing

    async def _perform(self) -> None:
        try:
            while self._wanted is not None and not self._stage.session.closing:
                number, self._wanted = self._wanted, None
                await self._present(number)
            if self.leaving and not self._stage.session.closing:
                await self._kept.load_back(self._stage, self.texts_back.emit)
                self.ended.emit()
        finally:
            self._task = None

    async def _present(self, number: int) -> None:
        self.number, self.trying, self.live = number, False, True
        self._pointed, self._held, self.due = NOWHERE, False, []
        self.spotlight.put_out()
        if self.show is not None:
            self.show.put_back()
        steady(self._stage.pages)
        self._bar.show()
        show = self.show = self._open(self.scene)
        self._bar.show_scene(self.scene, number + 1, len(self.scenes))
        self.scene_begun.emit()
        self._bar.setFocus()
        why = await self._play(show)
        self.live = False
        if why and not self._given_up():
            self._bar.say("")
            self._bar.point(tr("This scene could not be played. {why}", why=sentence(why)))
        if why or self._given_up():
            return
        traces = show.traces()
        self.told = [filled(point.words, traces) for point in self.scene.points]
        self.due = show.due()
        if self.replays:
            self._say(AGAIN)
            show.replay()
        else:
            show.go(max(self.due))
            self._hold()

    async def _play(self, show: Show) -> str:
        """Live, or from its recording, of which there may be none; why it could not be played, in words, or ""."""
        recall, why, self._source = self.scene.run is not None, engine_missing(), ""
        if not (recall and (self._recorded or why)):
            self._bar.say(LIVE)
            why = await show.play(self._given_up)
        if recall and (self._recorded or why) and not self._given_up():
            self._bar.say(READING)
            why = await show.recall(self._given_up)
            self._source = "" if why or self._given_up() else recorded_words(show.traces()[0].header)
        return why

    def _say(self, words: str) -> None:
        self._bar.say("  ·  ".join(filter(None, (self._source, words))))

    def _open(self, scene: Scene) -> Show:
        """The scene's page, with its panels in front."""
        stage, show = self._stage, None
        if scene.races:
            compare = stage.compare()
            show = RaceShow(scene, stage.session, compare)
        page = stage.play if show is None else compare
        stage.show_page(stage.pages.indexOf(page))
        made: Show = show or RunShow(scene, stage.session, stage.bridge, stage.play)
        made.arrange()
        return made

    def _hold(self) -> None:
        self._held = True
        self._say(HELD)
        self._bar.setFocus()

    def tick(self) -> None:
        """Lights what is due at the moment on show."""
        show = self.show
        if show is None or self.trying:
            return
        if self.live:
            self._light(show, self.scene.panels[0])
            return
        if not self.due:
            return
        if not self._held and show.share >= max(self.due) - NEAR:
            show.go(max(self.due))
            self._hold()
        place = point_at(self.due, show.share + NEAR)
        if place != self._pointed:
            self._pointed = place
            point = self.scene.points[place] if place >= 0 else None
            self._bar.point(self.words)
            show.select(point.request if point else -1)
            show.reveal(point.on if point else "")
            self.pointed.emit()
        self._light(show, self.scene.points[place].on if place >= 0 else "")

    def arrange(self) -> None:
        """The scene's panels as they belong: what is shown of it is another matter while presenting."""
        if self.show is not None and not self.trying:
            self.show.arrange()
            self._pointed = NOWHERE

    def _light(self, show: Show, name: str) -> None:
        place = show.place(name) if name else None
        if place is None or not place.isVisible():
            self.spotlight.put_out()
        else:
            self.spotlight.light(in_sight(place, self._stage.pages))

    # -- the end --------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        self._timer.stop()
        if self.show is not None:
            self.show.put_back()
        self.show = None
        self.spotlight.put_out()
        self.spotlight.deleteLater()
        self._bar.hide()
        self._bar.moved.disconnect(self.move)
        self._bar.tried.disconnect(self.try_it)
        self._bar.toggled.disconnect(self.toggle)
        self._bar.left.disconnect(self.leave)
        self._kept.put_back(self._stage)
