"""A scene with one lane: a run on the Play page."""

from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from time import perf_counter

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.language import shipped, tr
from app.play.layout import AREAS, FOOT, RIGHT, WIDE
from app.play.page import PlayPage
from app.playback.bridge import Bridge
from app.session.session import Session, SessionState
from app.stage.scene import Scene, shares
from app.stage.show import GivenUp, until
from app.ui.layout.boxes import steady
from app.ui.look import theme
from app.words import sentence
from engine import EngineConfig, InvalidInput, Submission, Trace, Workload, load_trace, load_workload
from engine.compare import parse_lane
from engine.jobs import engine_missing

TALL = 600  # pixels of the design: a window's height from which on streams stand above the panels at the foot
ACROSS, DOWN = 0.56, 0.62  # of the area, for what stands at the right and at the foot


class RunShow:
    def __init__(self, scene: Scene, session: Session, bridge: Bridge, page: PlayPage) -> None:
        self._scene, self._session, self._bridge, self._page = scene, session, bridge, page
        self._lane = parse_lane(scene.lanes[0])
        self._workload: Workload | None = None
        self._recalled = False

    def arrange(self) -> None:
        """The scene's panels around the streams, and nothing else. Where there is little room, panels stand behind
        each other, and the streams make way for those at the foot."""
        page, area = self._page, self._page.area
        steady(area)
        shown = [name for name in self._scene.panels if name in page.docks]
        page.composer.hide()
        for name, dock in page.docks.items():
            dock.setFloating(False)
            area.addDockWidget(AREAS.get(name, RIGHT), dock)
            dock.setVisible(name in shown)
        right = [page.docks[name] for name in shown if AREAS.get(name, RIGHT) is RIGHT]
        foot = [page.docks[name] for name in shown if AREAS.get(name, RIGHT) is FOOT]
        wide, tall = page.width() >= theme.px(WIDE), page.window().height() >= theme.px(TALL)
        for docks, room, orientation in (
            (right, tall, Qt.Orientation.Vertical),
            (foot, wide, Qt.Orientation.Horizontal),
        ):
            for first, second in pairwise(docks):
                if room:
                    area.splitDockWidget(first, second, orientation)
                else:
                    area.tabifyDockWidget(first, second)
            for dock in docks[:1]:
                dock.raise_()
        page.wall.setVisible(tall or not foot)
        if theme.presenting():
            self.reveal("")
            return
        if right:
            area.resizeDocks(right[:1], [round(ACROSS * area.width())], Qt.Orientation.Horizontal)
            area.resizeDocks(right, [area.height() // len(right)] * len(right), Qt.Orientation.Vertical)
        if foot:
            area.resizeDocks(foot[:1], [round(DOWN * area.height())], Qt.Orientation.Vertical)
            area.resizeDocks(foot, [area.width() // len(foot)] * len(foot), Qt.Orientation.Horizontal)

    # -- the run --------------------------------------------------------------------------------------------------

    async def play(self, given_up: GivenUp) -> str:
        session, lane = self._session, self._lane
        await until(lambda: session.state is not SessionState.LOADING or given_up())
        if given_up():
            return ""
        if not session.holds(lane.spec) and not await session.load(lane.spec, lane.config):
            return tr("{model} could not be loaded", model=sentence(lane.spec.source))
        try:
            workload = await self._read_workload()
        except InvalidInput as error:
            return str(error)
        if given_up() or not await session.begin(self._sized()):
            return "" if given_up() else tr("the engine did not take these settings")
        refused: list[str] = []
        session.submit_failed.connect(refuse := refused.append)
        try:
            await self._send(workload, lambda: bool(refused) or given_up())
            await until(lambda: self._over or bool(refused) or given_up())
        finally:
            session.submit_failed.disconnect(refuse)
        if given_up():
            session.stop()
            await until(lambda: not self._bridge.busy or session.closing)
        return refused[0] if refused else ""

    async def recall(self, given_up: GivenUp) -> str:
        session, bridge, run = self._session, self._bridge, self._scene.run
        assert run is not None
        try:
            trace = await session.off_thread(lambda: load_trace(run))
            if not engine_missing():
                await self._read_workload()
        except InvalidInput as error:
            return str(error)
        if not given_up():
            self._recalled = True
            bridge.show(trace)
            await until(lambda: not bridge.behind or given_up())
        return ""

    async def _read_workload(self) -> Workload:
        """Raises InvalidInput."""
        scene, source = self._scene, self._lane.spec.source
        read = partial(load_workload, scene.workload, model_folder=source, count=scene.count)
        workload = await self._session.off_thread(read)
        if scene.beam_width > 1:
            told = (replace(a, params=a.params.with_(beam_width=scene.beam_width)) for a in workload.arrivals)
            workload = replace(workload, arrivals=tuple(told))
        self._workload = workload
        return workload

    def _sized(self) -> EngineConfig:
        """With the pool of the scene, or of the workload."""
        config, workload, card = self._lane.config, self._workload, self._session.card
        tokens = self._scene.kv_tokens or (workload.suggested.kv_tokens if workload is not None else None)
        return config if tokens is None or card is None else replace(config, kv_memory=card.kv_memory(tokens, config))

    async def _send(self, workload: Workload, given_up: GivenUp) -> None:
        """Every prompt in its time; those of one moment come to one step."""
        begun = perf_counter()
        for time, arrivals in groupby(workload.arrivals, key=lambda arrival: arrival.time):
            await until(lambda time=time: perf_counter() - begun >= time or given_up())  # type: ignore[misc]
            if given_up():
                return
            await self._session.submit([Submission(a.prompt, a.params, label=a.label) for a in arrivals])

    @property
    def _over(self) -> bool:
        """Everything was sent, answered, and shown; a death of the engine ends it too."""
        bridge, workload = self._bridge, self._workload
        if not self._session.ready:
            return True
        sent = workload is not None and len(bridge.requests) >= len(workload)
        return bridge.trace is self._session.trace and sent and not bridge.busy and not bridge.behind

    # -- once more ------------------------------------------------------------------------------------------------

    def due(self) -> list[float]:
        scope = self._bridge.scope
        return shares(self._scene.points, scope.step_ends.tolist(), scope.origin)

    def traces(self) -> list[Trace]:
        return [self._bridge.trace]

    @property
    def share(self) -> float:
        scope = self._bridge.scope
        length = scope.end - scope.origin
        return (scope.now - scope.origin) / length if length > 0 else 1.0

    @property
    def playing(self) -> bool:
        return self._bridge.scope.playing

    def _see_all(self) -> None:
        for name in self._scene.panels:
            place = self._page.places.get(name)
            if place is not None and place.isVisible():
                place.build().see_all()

    def replay(self) -> None:
        scope = self._bridge.scope
        self._page.cursor_bar.speed.choose(scope.end - scope.origin, self._scene.seconds)
        scope.seek(scope.origin)
        self._see_all()
        scope.toggle()

    def go(self, share: float) -> None:
        scope = self._bridge.scope
        scope.seek(scope.origin + share * (scope.end - scope.origin))
        self._see_all()

    def toggle(self) -> None:
        self._bridge.scope.toggle()

    def select(self, request: int) -> None:
        self._bridge.scope.select(request)

    def place(self, name: str) -> QWidget | None:
        return self._page.wall if name == "streams" else self._page.docks.get(name)

    def reveal(self, name: str) -> None:
        """While presenting, it has the page for itself."""
        page, name = self._page, name or self._scene.panels[0]
        if theme.presenting():
            steady(page.area)
            page.wall.setVisible(name == "streams")
            for each, dock in page.docks.items():
                dock.setVisible(each == name)
        elif name in page.docks:
            page.docks[name].raise_()

    def put_back(self) -> None:
        self._page.composer.setVisible(not engine_missing())
        self._page.wall.show()

    def hand_over(self) -> None:
        """The usual panels, with the scene's in front, its settings in the forms and its prompts below."""
        page = self._page
        self.put_back()
        page.layout_of.prompt()
        for name in reversed(self._scene.panels):
            if name in page.docks:
                page.docks[name].raise_()
        if self._workload is not None:
            page.composer.take(shipped(self._workload.title) or self._workload.name, self._workload.arrivals)
        if self._recalled:
            self._session.start(self._session.begin(self._sized()))
        page.composer.send_button.setFocus()
