"""The batching panel: mode and limits. A change takes effect at once when the engine is idle, else when it is."""

from __future__ import annotations

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.playback.bridge import Bridge
from app.session.session import Session
from app.ui.config_form import ConfigForm
from app.ui.controls import Number, PowerOfTwo
from app.ui.labels import Heading, Note, Row
from engine import EngineConfig, InvalidInput

MEGABYTE = 1024 * 1024
SLOW_MS = 400  # a change that takes longer is said to be under way: a new pool, new captures


class BatchingPanel(QWidget):
    """Edits an `EngineConfig` and hands it to the session."""

    def __init__(self, session: Session, bridge: Bridge) -> None:
        super().__init__()
        self.setObjectName("batching_panel")
        self._session, self._bridge = session, bridge
        self._showing = False
        self.form = ConfigForm("batching")
        self.mode, self.running, self.budget = self.form.mode, self.form.running, self.form.budget
        self.block = PowerOfTwo("batching_block", 1, 256, 16, " tokens")
        self.memory = Number("batching_kv_memory", 0, 16_777_216, 0, " MB", 64)
        self.memory.setSpecialValueText("automatic")
        self.note = Note("batching_note")
        self._slow = QTimer(self, singleShot=True, interval=SLOW_MS)
        self._slow.timeout.connect(lambda: self.note.say("The engine gets ready for this …", "note"))
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 12, 12, 12)
        column.setSpacing(8)
        column.addWidget(Heading("Batching"))
        column.addWidget(self.form)
        self._block_row = Row("Block", self.block, "How many tokens one KV block holds: a power of two")
        self._memory_row = Row(
            "KV memory", self.memory, "The size of the KV cache; automatic takes a share of what is free"
        )
        column.addWidget(self._block_row)
        column.addWidget(self._memory_row)
        column.addWidget(self.note)
        self.form.edited.connect(self._on_edited)
        for number in (self.block, self.memory):
            number.valueChanged.connect(self._on_edited)
        session.config_changed.connect(self.set_config)
        session.config_refused.connect(self._on_refused)
        bridge.busy_changed.connect(self._on_busy)
        self._show_rows()

    def config(self) -> EngineConfig:
        """The config as chosen. Raises InvalidInput when its values do not go together."""
        memory = self.memory.value()
        return self.form.config(
            EngineConfig(
                block_size=self.block.value(),
                kv_memory=memory * MEGABYTE if memory else None,
                depth=self._session.config.depth,
                seed=self._session.config.seed,
            )
        )

    def set_config(self, config: EngineConfig) -> None:
        """Shows this config as the one in force. What its mode has no use for keeps its value."""
        self._showing = True
        self.form.set_config(config)
        self.block.setValue(config.block_size)
        self.memory.setValue(0 if config.kv_memory is None else max(1, config.kv_memory // MEGABYTE))
        self._showing = False
        self._show_rows()
        self.note.say("")

    def _show_rows(self) -> None:
        self._block_row.setVisible(self.form.paged)
        self._memory_row.setVisible(self.mode.currentData() != "recompute")

    def _on_edited(self) -> None:
        self._show_rows()
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
            self._slow.start()
            self._session.start(self._session.begin(config)).add_done_callback(lambda task: self._slow.stop())

    def _on_refused(self, message: str) -> None:
        self.note.say(message, "error")

    def _on_busy(self, busy: bool) -> None:
        if not busy:
            self._on_edited()
