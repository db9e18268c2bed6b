"""The live budget: what the steps of a running engine may compute, as sliders that act on the next one."""

from dataclasses import replace
from functools import partial
from typing import Any

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QToolButton, QWidget

from app.language import tr
from app.session.session import Session
from app.ui.controls import SliderValue, button
from app.ui.labels import Heading, Note, Row
from app.ui.layout.boxes import named
from app.ui.sheets.popover import Popover
from engine import EngineConfig
from engine.config import SHARED_BUDGET_MODES, SOLITARY_MODES, TARGET_MODES, LiveBudget

MS = 1000.0
MOST_TARGET = 0.1  # seconds that the slider goes up to at least
SETTLES_MS = 120  # after the last move of a slider
TITLE = tr("Live budget")
BUDGET = tr("How many tokens one step may compute, up to what the engine was prepared for")
SHARE = tr("How much of a step's tokens may be of prompts; the less, the steadier the running answers come")
RUNNING = tr("How many requests may run: where more do, those that came last make way and go on later")
TARGET = tr(
    "How long gaps between tokens may be in 19 of 20 cases, in ms: steps take in as much as that allows; 0: any"
)
PADDED = tr("How many requests may run: where more do, nobody joins until fewer run")
SETS = tr("Token budget, prompts' share and running limit of the next step")
ALONE = tr("This mode runs one request at a time: there is nothing to set.")
ACTS = tr("Acts on the next step, and holds until another run begins. The timeline marks it.")


class LiveBudgetSheet(Popover):
    """Sliders for those values that the engine's mode has a use for. `rows` by the names of the budget's values."""

    def __init__(self, parent: QWidget, session: Session) -> None:
        super().__init__(parent, "live_budget_sheet", TITLE, width=330)
        self._session, config = session, session.config
        self._config = config
        self.budget = session.steering.budget or LiveBudget.of(config)
        self.sliders: dict[str, SliderValue] = {}
        self.note = Note("live_budget_note")
        self.restore = button("live_budget_restore", tr("As configured"), self._on_restore)
        self._settles = QTimer(self, singleShot=True, interval=SETTLES_MS)
        self._settles.timeout.connect(self._steer)
        self.column.addWidget(Heading(TITLE))
        for name, text, tip, low, high, step in self._values(config):
            slider = SliderValue(f"live_{name}", text, low, high, self._shown(name), step=step)
            slider.box.setSpecialValueText(tr("any") if name == "target_itl" else "")
            self.sliders[name] = slider
            slider.value_changed.connect(partial(self._on_moved, name))
            self.column.addWidget(Row(text, slider, tip))
        for last in (self.note, *([self.restore] if self.sliders else [])):
            self.column.addWidget(last)
        self.note.say(ACTS if self.sliders else ALONE)
        self._tell()

    def _values(self, config: EngineConfig) -> list[tuple[str, str, str, float, float, float]]:
        """Name, words, tip, least, most and step of each; what can have one value only has no slider."""
        mode, found = config.mode, list[tuple[str, str, str, float, float, float]]()
        if mode in SHARED_BUDGET_MODES:
            found.append(("token_budget", tr("Budget"), BUDGET, 1, config.token_budget, 1))
            found.append(("prefill_share", tr("Prompts"), SHARE, 0.01, 1.0, 0.01))
        if mode in TARGET_MODES:
            most = max(MOST_TARGET, 4 * (config.target_itl or 0.0), self.budget.target_itl)
            found.append(("target_itl", tr("Gaps, ms"), TARGET, 0.0, MS * most, 0.5))
        if mode not in SOLITARY_MODES:
            found.append(("max_running", tr("Running"), RUNNING if config.paged else PADDED, 1, config.max_running, 1))
        return [value for value in found if value[3] < value[4]]

    def _shown(self, name: str) -> float:
        """A value in the slider's unit."""
        value: float = getattr(self.budget, name)
        return MS * value if name == "target_itl" else value

    def _on_moved(self, name: str, value: float) -> None:
        given: Any = {name: round(value)}
        if name == "prefill_share":
            given = {name: value}
        elif name == "target_itl":
            given = {name: round(value / MS, 6)}
        changed = replace(self.budget, **given)
        if self._config.mode in SHARED_BUDGET_MODES and changed.token_budget < changed.max_running:
            other = "max_running" if name == "token_budget" else "token_budget"  # a row is a token at least
            given = {other: round(value)}
            changed = replace(changed, **given)
        if changed != self.budget:
            self.budget = changed
            self._tell()
            self._settles.start()

    def _tell(self) -> None:
        for name, slider in self.sliders.items():
            slider.set_value(self._shown(name))
        self.restore.setEnabled(self.budget != LiveBudget.of(self._config))

    def _on_restore(self) -> None:
        self.budget = LiveBudget.of(self._config)
        self._tell()
        self._settles.start()

    def _steer(self) -> None:
        task = self._session.start(self._session.steering.set(self.budget))
        task.add_done_callback(lambda done: None if done.cancelled() else self._say(done.result()))

    def _say(self, refused: str) -> None:
        self.note.say(refused or ACTS, "error" if refused else "note")


class LiveBudgetButton(QToolButton):
    """Opens the sheet beside the live figures; its words say where less is allowed than configured."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        named(self, "live_budget", said=TITLE, tip=SETS)
        self._session = session
        self.sheet: LiveBudgetSheet | None = None
        self.setText(tr("Budget"))
        self.setEnabled(session.ready)
        self.clicked.connect(self._on_clicked)
        session.state_changed.connect(self._on_state)

    def _on_state(self) -> None:
        self.setEnabled(self._session.ready)

    def _on_clicked(self) -> None:
        if self.sheet is not None:
            self.sheet.setParent(None)  # it goes when what it has asked for is answered
        self.sheet = LiveBudgetSheet(self, self._session)
        self.sheet.open_below(self)
