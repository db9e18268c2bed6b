"""What a saved run was made with: in the place of the settings of the engine that is loaded, while it is on show."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFormLayout, QWidget

from app.ui.controls import DropDown, Switch, button
from app.ui.forms.config_form import mode_fields, pool_fields
from app.ui.forms.form import Field
from app.ui.labels import Heading, Note, label
from app.ui.layouts import column
from app.words import back_words, bytes_words, count_words, held_words, model_words, sentence
from engine.config import MODES
from engine.jobs import engine_missing
from engine.trace import Header

OWN = "What this run was made with."
SENT = "A prompt that you send goes to the engine that is loaded, with its own settings."
Fact = tuple[str, str]


def model_facts(header: Header) -> list[Fact]:
    card, machine = header.model, header.machine
    where = machine.gpu if card.device.startswith("cuda") and machine.gpu else machine.cpu
    return [
        ("Model", f"{model_words(card.source)}, {count_words(card.parameters)}"),
        ("Weights", held_words(card)),
        ("Machine", where),
    ]


def batching_facts(header: Header) -> list[Fact]:
    """The settings that matter to its mode, by the names and in the units of the form that sets them."""
    config = header.config
    fields = [*mode_fields("run"), *pool_fields("run")]
    facts = [(field.text, _said(field, getattr(config, field.name))) for field in fields if field.counts(config.mode)]
    for field in fields:
        field.control.deleteLater()
    if not header.graphs:
        facts = [fact for fact in facts if fact[0] != "Decode graphs"]  # none were captured, whatever was chosen
    if header.blocks and config.paged:
        size = header.blocks * config.block_size * header.kv_token_bytes
        facts.append(("Pool", f"{header.blocks:,} blocks, {bytes_words(size)}"))
    return facts


def _said(field: Field, value: object) -> str:
    """A value as its control would show it."""
    field.set(value)
    control = field.control
    match control:
        case DropDown():
            return control.currentText()
        case Switch():
            return "on" if control.isChecked() else "off"
        case _:
            return str(control.text())  # type: ignore[union-attr]


class RunSetup(QWidget):
    """Says what the run on show was made with; nothing here can be set."""

    back_asked = Signal()  # the engine's own settings, and its trace, are wanted again

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("run_setup")
        self.name = label("", "brand", "run_name")
        self.name.setWordWrap(True)
        own = Note("run_own")
        own.say(OWN if engine_missing() else f"{OWN} {SENT}")
        self.sentence = Note("run_sentence")
        self.facts = QFormLayout()
        self.facts.setContentsMargins(0, 0, 0, 0)
        self.back = button("run_back", back_words(), self.back_asked, role="quiet")
        parts = Heading("Saved run", self.back), self.name, own, self.facts, self.sentence, None
        self.setLayout(column(*parts, margins=(12, 0, 12, 12), spacing=8))
        self.hide()

    def show_run(self, name: str, header: Header) -> None:
        """Shows this run's settings."""
        self.name.setText(name)
        while self.facts.rowCount():
            self.facts.removeRow(0)
        for what, value in (*model_facts(header), *batching_facts(header)):
            words = label(value, "", f"run_{what.lower().replace(' ', '_')}")
            words.setWordWrap(True)
            self.facts.addRow(label(what, "secondary"), words)
        self.sentence.say(f"{sentence(header.config.mode)}: {MODES[header.config.mode]}.")
