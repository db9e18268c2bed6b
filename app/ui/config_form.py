"""The settings of a batching mode: those that matter to the chosen one are shown, the others keep their values."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.ui.controls import DropDown, Number, Switch
from app.ui.labels import Note, Row
from engine import EngineConfig
from engine.config import MODES, PAGED_MODES, SOLITARY_MODES
from engine.core import nvidia_driver

GATHERED = ("static", "dynamic")  # batches that leave together
JOINING = ("continuous-padded", *PAGED_MODES)  # requests come and go while others run
DELIVERY: list[tuple[str, object]] = [("as it comes", "stream"), ("when the batch is done", "batch")]


def devices() -> list[tuple[str, object]]:
    """Where a model may run, as choices of a list."""
    found: list[tuple[str, object]] = [("automatic", "auto"), ("CPU", "cpu")]
    if nvidia_driver():
        found.append(("GPU (CUDA)", "cuda"))
    return found


class ConfigForm(QWidget):
    """Edits mode, batch size and what goes with the mode. `name` begins the object names of its controls."""

    edited = Signal()

    def __init__(self, name: str) -> None:
        super().__init__()
        self._on_gpu = nvidia_driver()  # elsewhere nothing can be captured, whatever is chosen
        self.mode = DropDown(f"{name}_mode", [(mode, mode) for mode in MODES])
        for i, words in enumerate(MODES.values()):
            self.mode.setItemData(i, _capital(words), Qt.ItemDataRole.ToolTipRole)
        self.sentence = Note(f"{name}_sentence")
        self.running = Number(f"{name}_running", 1, 4096, 64)
        self.wait = Number(f"{name}_wait", 0, 3_600_000, 200, " ms", 50)
        self.join = Number(f"{name}_join", 1, 10_000, 1, " steps")
        self.join.setPrefix("every ")
        self.join.setSpecialValueText("at every step")
        self.budget = Number(f"{name}_budget", 1, 1_048_576, 2048, " tokens", 256)
        self.delivery = DropDown(f"{name}_delivery", DELIVERY)
        self.prefix = Switch(f"{name}_prefix", "Prefix caching")
        self.graphs = Switch(f"{name}_graphs", "CUDA graphs")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(Row("Mode", self.mode, "Who may join a step, who may leave, and what is computed together"))
        column.addWidget(self.sentence)
        self._rows: dict[QWidget, Row] = {}
        for text, control, tip in (
            ("Running", self.running, "How many requests may run at once"),
            ("Waits at most", self.wait, "A batch that is not full starts when its first request has waited so long"),
            ("New join", self.join, "At every step, or only at every second, third …"),
            ("Budget", self.budget, "How many tokens one step may compute, prompts and new tokens together"),
            ("Text comes", self.delivery, "Token by token, or held back until the whole batch is done"),
            ("Prefix caching", self.prefix, "Prompts that begin alike share their blocks"),
            ("CUDA graphs", self.graphs, "Decode steps are captured at load and replayed, not launched anew"),
        ):
            row = self._rows[control] = Row(text, control, tip)
            column.addWidget(row)
        self.mode.currentIndexChanged.connect(self._on_mode)
        self.delivery.currentIndexChanged.connect(self.edited)
        self.prefix.toggled.connect(self.edited)
        self.graphs.toggled.connect(self.edited)
        for number in (self.running, self.wait, self.join, self.budget):
            number.valueChanged.connect(self.edited)
        self.set_config(EngineConfig())

    @property
    def paged(self) -> bool:
        return self.mode.currentData() in PAGED_MODES

    def config(self, rest: EngineConfig) -> EngineConfig:
        """The settings as chosen, the others taken from `rest`. Raises InvalidInput when they do not go together."""
        mode, running, budget = self.mode.currentData(), self.running.value(), self.budget.value()
        return replace(
            rest,
            mode=mode,
            max_running=running,
            token_budget=budget if mode in JOINING else max(budget, running),
            join_every=self.join.value(),
            longest_wait=self.wait.value() / 1000,
            delivery=self.delivery.currentData() if mode in GATHERED else "stream",
            prefix_caching=self.prefix.isChecked() and mode in PAGED_MODES,
            cuda_graphs=self.graphs.isChecked() or mode not in PAGED_MODES,
        )

    def set_config(self, config: EngineConfig) -> None:
        """Shows these settings. What the config's mode has no use for keeps its value."""
        blocked = self.blockSignals(True)
        self.mode.setCurrentIndex(max(0, self.mode.findData(config.mode)))
        self.running.setValue(config.max_running)
        self.wait.setValue(round(1000 * config.longest_wait))
        self.join.setValue(config.join_every)
        if config.mode in JOINING:
            self.budget.setValue(config.token_budget)
        if config.mode in PAGED_MODES:
            self.prefix.setChecked(config.prefix_caching)
            self.graphs.setChecked(config.cuda_graphs)
        if config.mode in GATHERED:
            self.delivery.setCurrentIndex(self.delivery.findData(config.delivery))
        self._show_rows()
        self.blockSignals(blocked)

    def _show_rows(self) -> None:
        mode = self.mode.currentData()
        shown = {
            self.running: mode not in SOLITARY_MODES,
            self.wait: mode == "dynamic",
            self.join: mode in JOINING,
            self.budget: mode in JOINING,
            self.delivery: mode in GATHERED,
            self.prefix: mode in PAGED_MODES,
            self.graphs: mode in PAGED_MODES and (self._on_gpu or not self.graphs.isChecked()),
        }
        for control, row in self._rows.items():
            row.setVisible(shown[control])
        self._rows[self.running].label.setText("Batch size" if mode in GATHERED else "Running")
        self.sentence.say(_capital(MODES[mode]))

    def _on_mode(self) -> None:
        self._show_rows()
        self.edited.emit()


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:] + "."
