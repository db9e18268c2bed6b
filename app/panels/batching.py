"""The batching panel: mode and limits. A change takes effect at once when the engine is idle, else when it is."""

from __future__ import annotations

from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.bridge import Bridge
from app.session import Session
from app.widgets.controls import DropDown, Number, PowerOfTwo
from app.widgets.labels import Heading, Note, Row
from engine import MODES, EngineConfig, InvalidInput

MEGABYTE = 1024 * 1024


class BatchingPanel(QWidget):
    """Edits an `EngineConfig` and hands it to the session."""

    def __init__(self, session: Session, bridge: Bridge) -> None:
        super().__init__()
        self.setObjectName("batching_panel")
        self._session, self._bridge = session, bridge
        self._showing = False
        self.mode = DropDown("batching_mode", [(mode, mode) for mode in MODES])
        self.running = Number("batching_running", 1, 4096, 64)
        self.budget = Number("batching_budget", 1, 1_048_576, 2048, " tokens", 256)
        self.block = PowerOfTwo("batching_block", 1, 256, 16, " tokens")
        self.memory = Number("batching_kv_memory", 0, 16_777_216, 0, " MB", 64)
        self.memory.setSpecialValueText("automatic")
        self.note = Note("batching_note")
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 12, 12, 12)
        column.setSpacing(8)
        column.addWidget(Heading("Batching"))
        mode = Row("Mode", self.mode, next(iter(MODES.values())))
        column.addWidget(mode)
        for text, control, tip in (
            ("Running", self.running, "How many requests may hold a slot at once"),
            ("Budget", self.budget, "How many tokens one step may compute, prompts and new tokens together"),
            ("Block", self.block, "How many tokens one KV block holds: a power of two"),
            ("KV memory", self.memory, "The size of the KV pool; automatic takes a share of what is free"),
        ):
            column.addWidget(Row(text, control, tip))
        column.addWidget(self.note)
        self.mode.currentIndexChanged.connect(self._on_edited)
        for number in (self.running, self.budget, self.block, self.memory):
            number.valueChanged.connect(self._on_edited)
        session.config_changed.connect(self.set_config)
        session.config_refused.connect(self._on_refused)
        bridge.busy_changed.connect(self._on_busy)

    def config(self) -> EngineConfig:
        """The config as chosen. Raises InvalidInput when its values do not go together."""
        memory = self.memory.value()
        return EngineConfig(
            mode=self.mode.currentData(),
            max_running=self.running.value(),
            token_budget=self.budget.value(),
            block_size=self.block.value(),
            kv_memory=memory * MEGABYTE if memory else None,
            prefix_caching=self._session.config.prefix_caching,
            depth=self._session.config.depth,
            seed=self._session.config.seed,
        )

    def set_config(self, config: EngineConfig) -> None:
        """Shows this config as the one in force."""
        self._showing = True
        self.mode.setCurrentIndex(max(0, self.mode.findData(config.mode)))
        self.running.setValue(config.max_running)
        self.budget.setValue(config.token_budget)
        self.block.setValue(config.block_size)
        self.memory.setValue(0 if config.kv_memory is None else max(1, config.kv_memory // MEGABYTE))
        self._showing = False
        self.note.say("")

    def _on_edited(self) -> None:
        if self._showing:
            return
        try:
            config = self.config()
        except InvalidInput as error:
            self.note.say(str(error), "error")
            return
        if config == self._session.config:
            self.note.say("")
        elif self._bridge.busy:
            count = len(self._bridge.open)
            which = "the running request ends" if count == 1 else f"the {count:,} running requests end"
            self.note.say(f"Fixed while requests run. Takes effect when {which}.", "warning")
        else:
            self.note.say("")
            self._session.start(self._session.begin(config))

    def _on_refused(self, message: str) -> None:
        self.note.say(message, "error")

    def _on_busy(self, busy: bool) -> None:
        if not busy:
            self._on_edited()
