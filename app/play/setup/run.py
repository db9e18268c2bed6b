"""What a saved run was made with: in the place of the settings of the engine that is loaded, while it is on show."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFormLayout, QLineEdit, QWidget

from app.language import tr
from app.ui.controls import DropDown, Switch, button
from app.ui.forms.config_form import mode_fields, pool_fields, undrafted
from app.ui.forms.form import Field
from app.ui.labels import Heading, Note, label
from app.ui.layout.boxes import column
from app.words import back_words, bytes_words, count_words, held_words, mode_words, model_words, sentence
from engine.jobs import engine_missing
from engine.trace import Header

OWN = tr("What this run was made with.")
SENT = tr("A prompt that you send goes to the engine that is loaded, with its own settings.")
Fact = tuple[str, str, str]  # its name, the words for it, and its value in words


def model_facts(header: Header) -> list[Fact]:
    card, machine = header.model, header.machine
    where = machine.gpu if card.device.startswith("cuda") and machine.gpu else machine.cpu
    facts = [
        ("model", tr("Model"), f"{model_words(card.source)}, {count_words(card.parameters)}"),
        ("weights", tr("Weights"), held_words(card)),
        ("machine", tr("Machine"), where),
    ]
    if card.experts:
        asked = tr("{experts:,} a layer, {active:,} a token", experts=card.experts, active=card.active_experts)
        facts.insert(2, ("experts", tr("Experts"), asked))
    if card.adapters:
        facts.insert(2, ("adapters", tr("Adapters"), ", ".join(card.adapters)))
    if card.latent:
        facts.insert(2, ("kv_heads", tr("K and V"), tr("one latent of {dim:,} for all heads", dim=card.head_dim)))
    elif card.kv_heads_stored:
        heads = tr("{held}, of {stored} stored", held=card.kv_heads, stored=card.kv_heads_stored)
        facts.insert(2, ("kv_heads", tr("KV heads"), heads))
    return facts


def batching_facts(header: Header) -> list[Fact]:
    """The settings that matter to its mode, by the names and in the units of the form that sets them."""
    config = header.config
    fields = [*mode_fields("run"), *pool_fields("run")]
    # where the run has no graphs, none were captured, whatever was chosen
    idle = undrafted(config.speculation) | (set() if header.graphs else {"cuda_graphs"})
    idle |= set() if config.draft else {"draft"}  # the model's own
    idle |= set() if header.model.adapters else {"mixed_adapters"}
    idle |= set() if config.prefix_caching else {"offload_prefixes"}
    idle |= set() if config.target_itl else {"target_itl"}
    idle |= set() if config.kv_window else {"kv_window", "kv_sinks"}
    told = [each for each in fields if each.counts(config.mode) and each.name not in idle]
    facts = [(each.name, each.text, _said(each, getattr(config, each.name))) for each in told]
    for field in fields:
        field.control.deleteLater()
    if header.blocks and config.paged:
        pool = tr("{blocks:,} blocks, {bytes}", blocks=header.blocks, bytes=bytes_words(header.pool_bytes))
        facts.append(("pool", tr("Pool"), pool))
    return facts


def _said(field: Field, value: object) -> str:
    """A value as its control would show it."""
    field.set(value)
    control = field.control
    match control:
        case DropDown():
            return control.currentText()
        case Switch():
            return tr("on") if control.isChecked() else tr("off")
        case QLineEdit():
            return control.text() or control.placeholderText()
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
        parts = Heading(tr("Saved run"), self.back), self.name, own, self.facts, self.sentence, None
        self.setLayout(column(*parts, margins=(12, 0, 12, 12), spacing=8))
        self.hide()

    def show_run(self, title: str, header: Header) -> None:
        """Shows this run's settings."""
        self.name.setText(title)
        while self.facts.rowCount():
            self.facts.removeRow(0)
        for name, words, value in (*model_facts(header), *batching_facts(header)):
            said = label(value, "", f"run_{name}")
            said.setWordWrap(True)
            self.facts.addRow(label(words, "secondary"), said)
        self.sentence.say(f"{sentence(header.config.mode)}: {mode_words(header.config.mode)}.")
