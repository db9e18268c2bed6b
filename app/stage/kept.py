"""What a person had before a tour, and has again after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray

from app.play.layout import LAYOUT_VERSION
from app.session.session import SessionState
from app.stage.stage import Stage
from engine import EngineConfig, ModelSpec, Trace
from engine.remote import ServerAddress
from engine.workloads import Arrival

if TYPE_CHECKING:
    from app.compare.choice import RaceChoice


@dataclass(frozen=True, slots=True)
class Kept:
    """The page, the panels, the settings, the texts on show (`trace` is None where there were none), the file's prompts
    that the composer would have sent, by their name, and the `speeds` of replays on Play and of races."""

    page: int
    panels: QByteArray
    inside: bool
    loaded: bool
    spec: ModelSpec
    config: EngineConfig
    server: ServerAddress | None
    choice: RaceChoice | None
    trace: Trace | None
    prompts: tuple[Arrival, ...]
    prompts_name: str
    count: int
    speeds: tuple[float | None, float | None]

    @classmethod
    def of(cls, stage: Stage) -> Kept:
        session, play, bridge = stage.session, stage.play, stage.bridge
        compare = stage.compare()
        return cls(
            stage.pages.currentIndex(),
            play.panels,
            play.cursor_bar.inside.isChecked(),
            session.state is not SessionState.EMPTY,
            session.spec,
            session.config,
            session.server,
            compare.setup.choice,
            bridge.trace if bridge.requests else None,
            play.composer.draft().file,
            play.composer.file_name,
            play.composer.count.value(),
            (play.cursor_bar.speed.currentData(), compare.replay.speed.currentData()),
        )

    def put_back(self, stage: Stage) -> None:
        """The page, the panels and the race's settings."""
        play, compare, composer = stage.play, stage.compare(), stage.play.composer
        if composer.draft().file != self.prompts:
            composer.take(self.prompts_name, self.prompts)
        composer.count.setValue(self.count)
        play.area.restoreState(self.panels, LAYOUT_VERSION)
        play.cursor_bar.inside.setChecked(self.inside)
        play.cursor_bar.speed.set_value(self.speeds[0])
        compare.replay.speed.set_value(self.speeds[1])
        compare.replay.view.setCurrentIndex(0)
        if self.choice is not None:
            compare.setup.take(self.choice)
        stage.show_page(self.page)

    async def load_back(self, stage: Stage, show: Callable[[Trace], None]) -> None:
        """The model with its settings; `show` is called with the texts that were there."""
        session = stage.session
        if not self.loaded:
            await session.unload()
            session.spec = self.spec
            await session.begin(self.config)
        elif self.server is not None:
            await session.connect_to(self.server)
        elif not session.holds(self.spec):
            await session.load(self.spec, self.config)
        elif session.config != self.config:
            await session.begin(self.config)
        if self.trace is not None:
            show(self.trace)
