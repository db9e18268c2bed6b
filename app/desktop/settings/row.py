"""One setting: its title and what it does, its control, and the way back to its default."""

from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.desktop.settings.folder_field import FolderField
from app.desktop.settings.setting import Choice, Folder, OnOff, Setting, Whole
from app.language import tr
from app.ui.controls import DropDown, Number, Switch, button
from app.ui.labels import Note, label
from app.ui.layout.boxes import column, fill, held, row
from app.ui.layout.zoomed import sized

TITLES, CONTROLS = 190, 270  # pixels of the design


class SettingRow(QWidget):
    """Shows the value in force; what is chosen is in force at once."""

    changed = Signal()

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting
        self._name = f"settings_{setting.preference.key.split('/')[-1].replace(' ', '_')}"
        self.title = label(setting.title, "")
        self.note = Note(f"{self._name}_note")
        self.control = self._made()
        self.control.setAccessibleName(setting.title)
        self.control.setAccessibleDescription(setting.note)
        self.title.setBuddy(self.control)
        tip = tr("{setting}: back to the default", setting=setting.title)
        self.reset = button(f"{self._name}_reset", "↺", self._on_reset, role="quiet", tip=tip, said=tip)
        self.reset.setAutoDefault(False)
        policy = self.reset.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.reset.setSizePolicy(policy)
        top, middle = Qt.AlignmentFlag.AlignTop, Qt.AlignmentFlag.AlignVCenter
        words = sized(QWidget(), width=TITLES)
        fill(QHBoxLayout(words), self.title, margins=(0, 0, 0, 0))
        place = sized(held(row(self.control)), width=CONTROLS)
        if isinstance(self.control, Switch):
            place = sized(held(row(sized(self.control, width=30), None)), width=CONTROLS)
        sized(self.note, least_width=CONTROLS)
        beside = fill(QHBoxLayout(), (place, 0, middle), self.reset, None, spacing=8)
        shown = column(beside, self.note, spacing=2)
        fill(QHBoxLayout(self), (words, 0, top), (shown, 1), margins=(0, 0, 0, 0), spacing=12)
        words.setMinimumHeight(self.control.sizeHint().height())
        if setting.given:
            self.control.setEnabled(False)
        self.show_value()

    def show_value(self) -> None:
        """As it is in force."""
        value, control = self.setting.preference.value, self.control
        control.blockSignals(True)
        match control:
            case DropDown():
                if control.findData(value) < 0:
                    control.addItem(str(value), value)
                control.set_value(value)
            case Switch():
                control.setChecked(value)
            case Number():
                control.setValue(value)
            case FolderField():
                control.show_folder(value)
        control.blockSignals(False)
        control.update()
        self.reset.setVisible(self.setting.preference.changed and not self.setting.given)
        self.note.say(self.setting.given or self.setting.note, "note")

    def matches(self, words: list[str]) -> bool:
        """Whether each of these words is in what it says."""
        hay = f"{self.setting.title} {self.setting.note}".lower()
        return all(word in hay for word in words)

    def _made(self) -> DropDown | Switch | Number | FolderField:
        match self.setting.kind:
            case Choice(offered):
                made = DropDown(self._name, list(offered()))
                made.activated.connect(lambda: self._choose(made.currentData()))
                return made
            case OnOff():
                switch = Switch(self._name, self.setting.title)
                switch.toggled.connect(self._choose)
                return switch
            case Whole(low, high, least):
                number = Number(self._name, low, high, low, least=least)
                number.valueChanged.connect(self._choose)
                return number
            case Folder(default):
                folder = FolderField(self._name, self.setting.title, default())
                folder.chosen.connect(self._choose)
                folder.refused.connect(lambda why: self.note.say(why, "error"))
                return folder

    def _choose(self, value: Any) -> None:
        self.setting.preference.set(value)
        self.show_value()
        self.changed.emit()

    def _on_reset(self) -> None:
        self.control.setFocus()
        self._choose(self.setting.preference.default)
