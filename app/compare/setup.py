"""The bar over the lanes: which prompts, which lanes, by which rules; begin, stop, export."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QFrame, QGridLayout, QMenu, QWidget

from app import storage
from app.compare import choice as race_choice
from app.compare.choice import LaneChoice, RaceChoice
from app.compare.lanes.picker import LanePicker
from app.compare.rules import RaceRules, rules_words
from app.language import shipped, tr
from app.ui.controls import DropDown, button
from app.ui.labels import label, set_role
from app.ui.layout.boxes import held, named, row
from app.ui.layout.zoomed import sized
from app.ui.look import theme
from app.ui.sheets.ask_path import ask_path
from app.words import sentence
from engine import list_workloads
from engine.compare import RACE_SUFFIX
from engine.jobs import engine_missing
from engine.workloads import PROMPT_FILES, WorkloadCard

OPEN = "open"  # in place of a workload's name
KINDS = (
    ("race", tr("Race"), tr("Every lane once, on one clock")),
    ("sweep", tr("Sweep"), tr("Every lane at many batch sizes or request rates")),
)
RULES = tr("KV memory, repeats, order and what counts as good enough")
WIDE = 1480  # pixels of the design from which everything stands on one line


class RaceSetup(QFrame):
    """Edits a `RaceChoice`, which is remembered."""

    choice_changed = Signal()
    undoable = Signal(str, object, object)  # what was changed, in words; what takes it back, and does it again
    sweep_shown = Signal(bool)  # whether the sweep is on show, or the race
    race_asked = Signal()
    stop_asked = Signal()

    def __init__(self, export: QMenu, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, "race_setup", "panel")
        self.choice = race_choice.recall()
        self._cards: dict[str, WorkloadCard] = {card.name: card for card in list_workloads()}
        self._showing, self._lines = True, 0
        self._running = self._ending = False
        self.kinds = QButtonGroup(self)
        for i, (name, title, tip) in enumerate(KINDS):
            self.kinds.addButton(button(f"kind_{name}", title, role="page", tip=tip, checkable=True), i)
        self.kinds.button(0).setChecked(True)
        self.kinds.idToggled.connect(self._on_kind)
        self.workload = sized(DropDown("race_workload", said=tr("Workload"), most=340), least_width=220)
        self.picker = LanePicker()
        self.rules_button = button("race_rules_button", role="quiet", tip=RULES)
        self.rules = RaceRules(self)
        tip = tr("Copy or save the result table")
        self.export = sized(button("race_export", tr("Export"), tip=tip), least_width=80)
        self.export.setMenu(export)
        self.race = sized(button("race_button", tr("Race"), self._on_race, role="primary"), least_width=88)
        self._left = held(row(*self.kinds.buttons(), label(tr("Workload"), "secondary"), self.workload, spacing=8))
        self._right = held(row(self.rules_button, self.export, self.race, spacing=8))
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(12, 8, 12, 8)
        self._fold()
        theme.changes.theme_changed.connect(self._fold)
        self._fill_workloads()
        self._show()
        self.workload.activated.connect(self._on_workload)
        self.picker.lanes_changed.connect(self._on_lanes)
        self.picker.add.clicked.connect(lambda: self.picker.add_lane(race_choice.another_lane(self.choice)))
        self.rules_button.clicked.connect(lambda: self.rules.open_below(self.rules_button))
        self.rules.edited.connect(self._on_rules)
        self.say_running(False)

    @property
    def card(self) -> WorkloadCard | None:
        """The chosen workload; None for a file of a person's own."""
        return self._cards.get(self.choice.workload)

    @property
    def sweeps(self) -> bool:
        """Whether the sweep is on show."""
        return self.kinds.checkedId() == 1

    def show_sweep(self, on: bool) -> None:
        self.kinds.button(int(on)).setChecked(True)

    def say_running(self, running: bool, ending: bool = False) -> None:
        """Whether the button begins a race or stops it."""
        self._running, self._ending = running, ending
        viewer = sentence(engine_missing())
        if running:
            words, said, tip = tr("Stop"), tr("Stop"), tr("Stop; what is finished stays (Esc)")
        elif self.sweeps:
            words, said, tip = tr("Sweep"), tr("Start the sweep"), viewer or tr("Sweep (Ctrl+Enter)")
        else:
            words, said, tip = tr("Race"), tr("Start the race"), viewer or tr("Race (Ctrl+Enter)")
        self.race.setText(words)
        self.race.setAccessibleName(said)
        self.race.setToolTip(tip)
        set_role(self.race, "" if running else "primary")
        self.race.setEnabled(not (ending or viewer))
        for control in (self.workload, self.picker, self.rules_button):
            control.setEnabled(not running and not ending)

    def open_file(self, path: str | Path) -> None:
        """Takes a workload of a person's own."""
        path = Path(path)
        storage.settings().setValue("compare/folder", str(path.parent))
        self.change(tr("took {file}", file=path.name), replace(self.choice, workload=str(path), count=0, kv_tokens=0))

    def choose_file(self, take: Callable[[str], object] | None = None) -> None:
        """Asks for a file of prompts or a recipe, or, where someone else will `take` it, for a race too."""
        endings = " ".join(f"*{ending}" for ending in (".toml", *PROMPT_FILES, *([RACE_SUFFIX] if take else [])))
        title = tr("Open a workload or a race") if take else tr("Open a workload")
        what = tr("Workloads and races") if take else tr("Workloads")
        filters = [f"{what} ({endings})", tr("All files (*)")]
        ask_path(self, "workload_dialog", title, "compare/folder", take or self.open_file, filters)

    # -- inside ---------------------------------------------------------------------------------------------------

    def minimumSizeHint(self) -> QSize:
        """As narrow as it is when folded, and as high as it stands now."""
        parts = self._left, self._right, self.picker
        wide = max(part.minimumSizeHint().width() for part in parts)
        return QSize(wide + 24, super().minimumSizeHint().height())

    def _fold(self) -> None:
        """On one line, the lanes on one of their own, or, where even the rest has no room, on three."""
        rest = self._left.sizeHint().width() + self._right.sizeHint().width() + 72
        lines = 1 if self.width() >= theme.px(WIDE) else 2 if self.width() >= rest else 3
        if lines != self._lines:
            self._lines = lines
            self._place()

    def _place(self) -> None:
        grid, lines = self._grid, self._lines
        for widget in (self._left, self.picker, self._right):
            grid.removeWidget(widget)
        grid.addWidget(self._left, 0, 0)
        if lines == 1:
            grid.addWidget(self.picker, 0, 1)
        else:
            grid.addWidget(self.picker, lines - 1, 0, 1, 3)
        grid.addWidget(self._right, *((1, 0, 1, 3) if lines == 3 else (0, 2, 1, 1)), Qt.AlignmentFlag.AlignRight)
        grid.setColumnStretch(1, 1)
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(8)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fold()

    def _fill_workloads(self) -> None:
        self.workload.clear()
        for card in self._cards.values():
            words = tr("{title} · {count:,} prompts", title=shipped(card.title), count=card.requests)
            self.workload.addItem(words, card.name)
            self.workload.setItemData(self.workload.count() - 1, shipped(card.description), Qt.ItemDataRole.ToolTipRole)
        if self.card is None:
            self.workload.addItem(Path(self.choice.workload).name, self.choice.workload)
        self.workload.insertSeparator(self.workload.count())
        self.workload.addItem(tr("open a file …"), OPEN)
        self.workload.set_value(self.choice.workload)
        self.workload.setToolTip(shipped(self.card.description) if self.card else self.choice.workload)

    def _show(self) -> None:
        self._showing = True
        card = self.card
        suggested = (card.suggested.kv_tokens if card else None) or 0
        self.picker.editor.adapted = bool(card and card.adapters)
        self.rules.suggest(suggested, card.requests if card else 0)
        self.rules.show_choice(self.choice)
        words = rules_words(self.choice, suggested)
        self.rules_button.setText(f"{words}  ▾")
        self.rules_button.setAccessibleName(tr("Rules of the race: {rules}", rules=words))
        if self.picker.lanes != self.choice.lanes:
            self.picker.set_lanes(self.choice.lanes)
        self._showing = False

    def take(self, choice: RaceChoice) -> None:
        """Shows another choice and remembers it."""
        if choice != self.choice:
            self.choice = choice
            race_choice.keep(choice)
            self._show()
            if self.workload.currentData() != choice.workload:
                self._fill_workloads()
            self.choice_changed.emit()

    def change(self, words: str, choice: RaceChoice) -> None:
        """Takes another choice, and says how the one before comes back."""
        before = self.choice
        self.take(choice)
        if choice != before:
            self.undoable.emit(words, lambda: self.take(before), lambda: self.take(choice))

    def _on_workload(self) -> None:
        name = self.workload.currentData()
        if name == OPEN:
            self.workload.set_value(self.choice.workload)
            self.choose_file()
            return
        lanes = self.choice.lanes
        card = self._cards.get(name)
        if card is not None and card.suggested.lanes:
            lanes = tuple(LaneChoice.parse(text) for text in card.suggested.lanes)
        self.workload.setToolTip(shipped(card.description) if card else str(name))
        choice = replace(self.choice, workload=str(name), lanes=lanes, count=0, kv_tokens=0)
        self.change(tr("chose another workload"), choice)

    def _on_lanes(self) -> None:
        lanes = self.picker.lanes
        what = tr("removed a lane") if len(lanes) < len(self.choice.lanes) else tr("changed the lanes")
        self.change(what, replace(self.choice, lanes=lanes))

    def _on_rules(self) -> None:
        if not self._showing:
            self.take(self.rules.applied(self.choice))

    def _on_kind(self, index: int, on: bool) -> None:
        if on:
            self.say_running(self._running, self._ending)
            self.sweep_shown.emit(self.sweeps)

    def _on_race(self) -> None:
        (self.stop_asked if self._running else self.race_asked).emit()
