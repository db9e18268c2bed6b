"""A scene with several lanes: a race on the Compare page."""

from dataclasses import replace

from PySide6.QtWidgets import QWidget

from app.compare.choice import LaneChoice, RaceChoice
from app.compare.page import ComparePage
from app.compare.race.lane_show import LaneState
from app.inside.insights import INSIGHTS
from app.language import shipped, tr
from app.session.lessee import Phase
from app.session.session import Session, SessionState
from app.stage.scene import Scene, in_turn
from app.stage.show import GivenUp, until
from app.stage.spotlight import reveal
from app.words import sentence
from engine import InvalidInput, Lane, ModelSpec, Trace
from engine.compare import load_race


def headed(lane: Lane) -> Lane:
    """The lane with its heading in the language that is spoken."""
    return replace(lane, name=shipped(lane.name))


class RaceShow:
    def __init__(self, scene: Scene, session: Session, page: ComparePage) -> None:
        self._scene, self._session, self._page = scene, session, page
        self._raced = False

    def arrange(self) -> None:
        """The lanes, showing what the scene is about, and of what is below them what it points at."""
        page, view = self._page, self._page.replay.view
        page.setup.hide()
        pointed = {point.on for point in self._scene.points}
        below = {"curves": page.charts, "table": page.result}
        page.below.spare(*(widget for name, widget in below.items() if name in pointed))
        for name, widget in below.items():
            widget.setVisible(name in pointed)
        page.verdict.wanted = False
        page.verdict.restyle()
        page.setup.show_sweep(False)
        insight = next((insight for insight in INSIGHTS if insight.name == self._scene.panels[0]), None)
        view.setCurrentIndex(0 if insight is None else view.findText(insight.title))

    # -- the race -------------------------------------------------------------------------------------------------

    async def play(self, given_up: GivenUp) -> str:
        session, page = self._session, self._page
        await until(lambda: (session.state is not SessionState.LOADING and not page.race.busy) or given_up())
        if given_up():
            return ""
        demo = ModelSpec()
        if not session.holds(demo) and not await session.load(demo):
            return tr("{model} could not be loaded", model=sentence(demo.source))
        page.setup.take(self._choice)
        refused: list[str] = []
        page.race.refused.connect(refuse := lambda words, requests_run: refused.append(words))
        try:
            page.start()
            await until(lambda: page.race.phase is Phase.OVER or bool(refused) or given_up())
            if given_up():
                page.stop()
                await until(lambda: not page.race.busy or session.closing)
                return ""
        finally:
            page.race.refused.disconnect(refuse)
        failed = next((lane for lane in page.race.lanes if lane.state is LaneState.FAILED), None)
        if not refused and failed is None:
            await until(lambda: all(lane.playback.caught_up for lane in page.race.lanes) or given_up())
            self._raced = True
        return refused[0] if refused else "" if failed is None else failed.error

    async def recall(self, given_up: GivenUp) -> str:
        race, run = self._page.race, self._scene.run
        assert run is not None
        await until(lambda: not race.busy or given_up())
        try:
            result, _ = await self._session.off_thread(lambda: load_race(run))
        except InvalidInput as error:
            return str(error)
        if not given_up():
            lanes = tuple(map(headed, result.lanes))
            self._page.show_race(replace(result, lanes=lanes), self._choice, run)
            self._raced = True
            await until(lambda: race.report is not None or given_up())
            await until(lambda: all(lane.playback.caught_up for lane in race.lanes) or given_up())
        return ""

    @property
    def _choice(self) -> RaceChoice:
        scene = self._scene
        lanes = map(LaneChoice.parse, scene.lanes)
        spoken = tuple(replace(choice, lane=headed(choice.lane)) for choice in lanes)
        return RaceChoice(scene.workload, spoken, scene.kv_tokens or 0, scene.count or 0)

    # -- once more ------------------------------------------------------------------------------------------------

    def due(self) -> list[float]:
        """A point on a lane is due at that share, or at that step, of the lane's own run; one on all lanes at the first
        one's step. A lane's step is shown where it is on the clock, any other point after those before it."""
        race = self._page.race
        asked: list[float] = []
        fixed: list[bool] = []
        for point in self._scene.points:
            kind, *which = point.on.split()
            lane = race.lanes[int(which[0]) - 1] if kind == "lane" else None
            stepped = race.lanes[0] if lane is None else lane
            steps = stepped.playback.trace.steps if point.step is not None else []  # a scope may not know them yet
            if point.step is not None and race.longest > 0 and steps:
                ended = steps[min(point.step, len(steps) - 1)].ended
                share = (ended - (stepped.playback.origin or 0.0)) / race.longest
                fixed.append(lane is not None)
            else:
                whole = point.at >= 1.0 or lane is None or race.longest <= 0
                share = point.at * (1.0 if whole or lane is None else lane.span / race.longest)
                fixed.append(False)
            asked.append(share)
        return in_turn(asked, fixed)

    def traces(self) -> list[Trace]:
        return [lane.playback.trace for lane in self._page.race.lanes]

    @property
    def share(self) -> float:
        race = self._page.race
        return race.clock / race.longest if race.longest > 0 else 1.0

    @property
    def playing(self) -> bool:
        return self._page.race.replaying

    def replay(self) -> None:
        race = self._page.race
        if self._raced:
            self._page.replay.speed.choose(race.longest, self._scene.seconds)
            race.seek(0.0)
            race.play()

    def go(self, share: float) -> None:
        race = self._page.race
        race.pause()
        if share >= 1.0:
            race.show_end()
        else:
            race.seek(share * race.longest)

    def toggle(self) -> None:
        self._page.race.toggle()

    def select(self, request: int) -> None:
        for view in self._page.views:
            view.lane.scope.select(request)

    def place(self, name: str) -> QWidget | None:
        page, (kind, *which) = self._page, name.split()
        if kind == "lane" and int(which[0]) <= len(page.views):
            view = page.views[int(which[0]) - 1]
            return view.panel if which[1:] else view
        places: dict[str, QWidget] = {"lanes": page.lanes_place, "curves": page.charts, "table": page.result}
        return places.get(kind)

    def reveal(self, name: str) -> None:
        place = self.place(name) if name else None
        if place is not None:
            reveal(place)

    def hand_over(self) -> None:
        self.put_back()
        self._page.setup.race.setFocus()

    def put_back(self) -> None:
        page = self._page
        page.below.spare()
        for widget in (page.setup, page.charts, page.result):
            widget.show()
        page.verdict.wanted = True
        page.verdict.restyle()
