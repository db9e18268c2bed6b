"""Presets: made, changed and deleted. What is changed is kept at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QListWidget, QWidget

from app.chat.store.presets import Preset, PresetStore
from app.language import tr
from app.sampling.fields import sampling_fields
from app.sampling.output import OutputForm
from app.ui.banner import Banner
from app.ui.controls import button, line_edit
from app.ui.forms.adapters import ThroughChoice
from app.ui.forms.form import Form
from app.ui.labels import Note, Row, label
from app.ui.layout.boxes import Scrolled, column, held, named, row
from app.ui.layout.zoomed import sized
from app.ui.look import theme
from app.ui.prompt_edit import PromptEdit
from app.ui.sheets.dialog import Dialog
from app.words import sentence
from engine import InvalidInput, SamplingParams

SHOWN = (
    "adapter",
    "temperature",
    "top_p",
    "max_tokens",
    "min_p",
    "top_k",
    "repetition_penalty",
    "seed",
    "stop",
    "bad_words",
)
KEEP_MS = 300  # without another key, until what was changed is kept
NAMES, GAP, WIDE, HIGH = 170, 20, 420, 420  # pixels of the design


class PresetDialog(Dialog):
    changed = Signal()

    def __init__(self, parent: QWidget, store: PresetStore, chosen: str, adapters: tuple[str, ...] = ()) -> None:
        """`adapters` are those of the model that is loaded."""
        super().__init__(parent, "preset_dialog", tr("Presets"))
        self._store, self._adapters = store, adapters
        self._preset: Preset | None = None
        self.list = sized(named(QListWidget(), "preset_list", "list", said=tr("Presets")), width=NAMES)
        self.name = line_edit("preset_name", tr("Name"))
        self.system = PromptEdit("preset_system", 3, 6)
        self.system.setAccessibleName(tr("System prompt"))
        self.system.setPlaceholderText(tr("How the model should behave; empty for no system prompt"))
        fields = sampling_fields()
        self.form = Form([field for field in fields if field.name in SHOWN], self)
        self.output = OutputForm()
        self.error = Note("preset_error", "error")
        self.notice = Banner()
        self._keeping = QTimer(self, interval=KEEP_MS, singleShot=True)
        self._keeping.timeout.connect(self.keep)
        self._lay_out()
        self.add_close()
        self._connect()
        self.show_presets(chosen)

    def _lay_out(self) -> None:
        new = button("preset_new", tr("New"), self._on_new, tip=tr("Another preset, like the chosen one"))
        self.delete = button("preset_delete", tr("Delete"), self._on_delete)
        left = column((self.list, 1), row(new, self.delete, spacing=8), spacing=8)
        rows = (self.form.rows[name] for name in SHOWN)
        system = label(tr("System prompt"), "secondary"), self.system
        shown = Row(tr("Name"), self.name), *system, *rows, self.output, None
        fields = column(*shown, margins=(0, 0, 12, 0), spacing=8)
        sheet = sized(Scrolled(fields, "preset_scroll", tr("preset")), least_width=WIDE, least_height=HIGH)
        sheet.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.column.addWidget(self.notice)
        self.column.addWidget(held(row(left, (column((sheet, 1), self.error, spacing=8), 1), spacing=GAP)))
        self.setMinimumWidth(theme.px(NAMES + GAP + WIDE) + self.column.contentsMargins().left() * 2)

    def _connect(self) -> None:
        self.list.currentRowChanged.connect(self._on_chosen)
        for signal in (self.name.textChanged, self.system.textChanged, self.form.edited, self.output.edited):
            signal.connect(self._on_edited)
        self.finished.connect(self.keep)

    def show_presets(self, chosen: str) -> None:
        """Those that there are, and one of them to change."""
        presets = self._store.all()
        blocked = self.list.blockSignals(True)
        self.list.clear()
        self.list.addItems([preset.name for preset in presets])
        place = next((i for i, preset in enumerate(presets) if preset.name == chosen), 0)
        self.list.setCurrentRow(place)
        self.list.blockSignals(blocked)
        self._show(presets[place])

    def _show(self, preset: Preset) -> None:
        self._preset = None  # what is shown is not what a person types
        through, own = self.form["adapter"].control, preset.params.adapter
        assert isinstance(through, ThroughChoice)
        through.offer_names(tuple(dict.fromkeys((*self._adapters, *((own,) if own else ())))), in_turn=False)
        self.form.rows["adapter"].setVisible(bool(self._adapters or own))
        self.name.setText(preset.name)
        self.system.setPlainText(preset.system)
        self.form.show(preset.params)
        self.output.show_params(preset.params)
        self.error.say("")
        self._keeping.stop()
        self._preset = preset

    def _on_chosen(self, place: int) -> None:
        self.keep()
        presets = self._store.all()
        if 0 <= place < len(presets):
            self._show(presets[place])

    def _on_edited(self) -> None:
        if self._preset is not None:
            self._keeping.start()

    def keep(self) -> None:
        """Writes down what is shown; what is wrong with it is said, and the preset stays as it was."""
        preset = self._preset
        if preset is None or not self._keeping.isActive():
            return
        self._keeping.stop()
        try:
            params = SamplingParams(**self.form.values() | self.output.values())
            kept = replace(preset, name=self.name.text(), system=self.system.toPlainText().strip(), params=params)
            self._preset = self._store.save(kept)
        except InvalidInput as error:
            self.error.say(sentence(str(error)))
            return
        self.error.say("")
        item = self.list.currentItem()
        if item is not None:
            item.setText(self._preset.name)
        self.changed.emit()

    def _on_new(self) -> None:
        self.keep()
        if self._preset is None:
            return
        taken = {preset.name for preset in self._store.all()}
        name = next(name for n in range(2, 1000) if (name := f"{self._preset.name} {n}") not in taken)
        if self._tried(lambda: self._store.save(replace(self._preset or Preset(name), name=name, id=0))):
            self.show_presets(name)
            self.name.setFocus()
            self.name.selectAll()

    def _on_delete(self) -> None:
        preset = self._preset
        if preset is None or not self._tried(lambda: self._store.delete(preset)):
            return
        self.show_presets("")
        deleted = tr("Deleted the preset {name}", name=preset.name)
        self.notice.tell("info", deleted, "", action=(tr("Undo"), lambda: self._put_back(preset)))

    def _put_back(self, preset: Preset) -> None:
        if self._tried(lambda: self._store.put_back(preset)):
            self.show_presets(preset.name)

    def _tried(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except InvalidInput as error:
            self.error.say(sentence(str(error)))
            return False
        self.changed.emit()
        return True
