"""Plays all lanes of a race together from the start, or shows them at any moment."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame

from app.compare.race.session import RaceSession
from app.inside.insights import INSIGHTS
from app.language import tr
from app.playback.speed import SpeedChoice, watchable
from app.session.lessee import Phase
from app.ui.controls import DropDown, Slider, button
from app.ui.labels import label
from app.ui.layout.boxes import named, row
from app.ui.layout.zoomed import sized
from app.ui.look.backstage import Backstage

STEPS = 1000
REPLAY = tr("▶  Replay")


class ReplayBar(QFrame):
    """Hidden while there is nothing to replay. Says too what the lanes show of their traces."""

    view_chosen = Signal(object)  # Insight, or None for the plain timeline

    def __init__(self, race: RaceSession) -> None:
        super().__init__()
        named(self, "replay_bar", "panel")
        self._race = race
        tip = tr("Play all lanes together from the start (Space)")
        self.button = sized(button("replay_button", REPLAY, race.toggle, tip=tip), least_width=104)
        self.slider = Slider("replay_slider", tr("Moment of the replay"), STEPS)
        self.time = sized(label("", "secondary", "replay_time"), width=120)
        self.time.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.speed = SpeedChoice("replay_speed", tr("Speed of the replay"))
        views = [(tr("Slots and streams"), None), *((insight.title, insight) for insight in INSIGHTS)]
        self.view = DropDown("lane_views", views, tr("What the lanes show"))
        self.view.setSizeAdjustPolicy(DropDown.SizeAdjustPolicy.AdjustToContents)
        self.view.setToolTip(tr("What every lane shows of its run"))
        self.view.currentIndexChanged.connect(lambda: self.view_chosen.emit(self.view.currentData()))
        line = self.button, (self.slider, 1), self.time, self.speed, self.view
        self.setLayout(row(*line, margins=(12, 6, 12, 6), spacing=12))
        Backstage(self, self.speed, self.view)
        self.slider.valueChanged.connect(self._on_slid)
        self.speed.currentIndexChanged.connect(self._on_speed)
        race.clock_moved.connect(self._on_clock)
        race.replay_changed.connect(self._on_replay)
        race.phase_changed.connect(self._on_phase)
        self._on_phase(race.phase)

    def _on_phase(self, phase: Phase) -> None:
        over = phase in (Phase.ENDING, Phase.OVER)
        self.setVisible(phase is not Phase.EMPTY)
        for control in (self.button, self.slider, self.speed):
            control.setEnabled(over and self._race.can_replay)
        self.speed.tell(watchable(self._race.longest))
        self._on_clock(self._race.clock)

    def _on_clock(self, clock: float) -> None:
        longest = max(self._race.longest, clock)
        words = tr("{clock:.1f} of {longest:.1f} s", clock=clock, longest=longest)
        if longest < 1:
            words = tr("{clock:.0f} of {longest:.0f} ms", clock=1e3 * clock, longest=1e3 * longest)
        self.time.setText(words)
        self.slider.show_place(round(STEPS * clock / longest) if longest else 0)

    def _on_slid(self, step: int) -> None:
        self._race.pause()
        self._race.seek(self._race.longest * step / STEPS)

    def _on_speed(self) -> None:
        self._race.speed = self.speed.currentData()
        self.speed.tell(watchable(self._race.longest))

    def _on_replay(self, runs: bool) -> None:
        self.button.setText(tr("❚❚  Pause") if runs else REPLAY)
        self.button.setAccessibleName(tr("Pause the replay") if runs else tr("Replay the race"))
