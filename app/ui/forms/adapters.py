"""Choosing adapters (LoRA): those that a model is loaded with, and the one that requests go through."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from PySide6.QtCore import QPoint, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from app import storage
from app.language import tr
from app.ui.controls import DropDown
from app.ui.sheets.ask_path import ask_path
from app.words import sentence
from engine import InvalidInput
from engine.checkpoints import EMBEDDED_ADAPTERS, inspect_adapter
from engine.config import adapter_name, adapter_source

ABOUT = tr(
    "Small pairs of matrices (LoRA) beside the model's own: requests of several of them, and of none, share every step"
)
NONE, IN_TURN = "", "*"  # which of them requests go through, besides their names
THROUGH = tr("The model as it is, one of the adapters that it was loaded with, or each of these in turn")
KEPT, MOST_KEPT = "model/adapters", 8  # folders that were chosen before


class AdapterChoice(DropDown):
    """Which adapters a model is loaded with: a list to tick, of those that ship, for the demo model, and of folders."""

    valueChanged = Signal()
    refused = Signal(str)  # why a folder is none

    def __init__(self, name: str) -> None:
        super().__init__(name, [(tr("none"), "")])
        self._chosen: tuple[str, ...] = ()
        self._ships = False

    def value(self) -> tuple[str, ...]:
        return self._chosen

    def setValue(self, chosen: Sequence[str]) -> None:
        if tuple(chosen) != self._chosen:
            self._chosen = tuple(chosen)
            self.setItemText(0, ", ".join(map(adapter_name, chosen)) or tr("none"))
            self.setToolTip("\n".join(chosen) if chosen else ABOUT)
            self.valueChanged.emit()

    def begin(self, ships: bool) -> None:
        """Another model is chosen, whose adapters are others; `ships`: some ship with it."""
        self._ships = ships
        self.setValue(())

    def showPopup(self) -> None:
        menu = self.menu()
        menu.setMinimumWidth(self.width())
        menu.popup(self.mapToGlobal(QPoint(0, self.height())))

    def menu(self) -> QMenu:
        menu = QMenu(self)
        menu.setObjectName("adapters_menu")
        menu.aboutToHide.connect(menu.deleteLater)
        chosen = {adapter_name(source): source for source in self._chosen}
        known: dict[str, str] = {}  # one of a name, what is chosen before others
        for source in (*(EMBEDDED_ADAPTERS if self._ships else ()), *self._chosen, *kept()):
            known.setdefault(adapter_name(source), chosen.get(adapter_name(source), source))
        for source in known.values():
            action = QAction(adapter_name(source), menu, checkable=True, checked=source in self._chosen)
            action.setToolTip(adapter_source(source))
            action.toggled.connect(lambda on, source=source: self._tick(source, on))
            menu.addAction(action)
        menu.setToolTipsVisible(True)
        if known:
            menu.addSeparator()
        menu.addAction(tr("Add a folder …"), self.ask)
        return menu

    def ask(self) -> None:
        """Asks for a folder as PEFT writes it."""
        ask_path(self, "adapter_dialog", tr("Choose an adapter's folder"), "model/adapter_folder", self.add)

    def add(self, folder: str) -> None:
        """Takes one more, if it is one."""
        taken = {adapter_name(each): adapter_source(each) for each in (*EMBEDDED_ADAPTERS, *self._chosen)}
        given = called(folder, {name for name, source in taken.items() if source != folder})
        try:
            inspect_adapter(given)
        except InvalidInput as error:
            self.refused.emit(sentence(str(error)))
            return
        storage.settings().setValue("model/adapter_folder", str(Path(folder).parent))
        known = [each for each in kept() if adapter_source(each) != folder]
        storage.settings().setValue(KEPT, "\n".join([given, *known][:MOST_KEPT]))
        self._tick(given, True)

    def _tick(self, source: str, on: bool) -> None:
        others = [each for each in self._chosen if adapter_name(each) != adapter_name(source)]
        self.setValue([*others, source] if on else others)


def called(folder: str, taken: Collection[str]) -> str:
    """A folder as `ModelSpec.adapters` has it: by its own name, or, where that is none or taken, by one like it."""
    own = re.sub(r"[^\w.-]+", "-", Path(folder).name)[:60] or "adapter"
    name = next(name for n in range(1, 1000) if (name := own if n == 1 else f"{own}-{n}") not in taken)
    return folder if adapter_name(folder) == name and adapter_source(folder) == folder else f"{name}={folder}"


def kept() -> list[str]:
    """Folders that were chosen before, and are still there."""
    told = str(storage.settings().value(KEPT, "")).splitlines()
    return [given for given in told if Path(adapter_source(given)).is_dir()]


class ThroughChoice(DropDown):
    """Which of a loaded model's adapters requests go through. A name that the model lacks is kept for one that has
    it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, [(tr("none"), NONE)])
        self._wanted: object = NONE
        self.currentIndexChanged.connect(self._on_chosen)

    def offer_names(self, names: Sequence[str], in_turn: bool) -> None:
        """Those of the model that is loaded; `in_turn`: requests may go through each of them in turn."""
        blocked = self.blockSignals(True)
        wanted = self._wanted
        self.clear()
        self.addItem(tr("none"), NONE)
        for name in names:
            self.addItem(name, name)
        if in_turn and names:
            self.addItem(tr("each in turn"), IN_TURN)
        self._wanted = wanted
        super().set_value(wanted)
        self.blockSignals(blocked)

    def set_value(self, value: object) -> None:
        self._wanted = value
        super().set_value(value)
        self._wanted = value

    def _on_chosen(self) -> None:
        self._wanted = self.currentData()
