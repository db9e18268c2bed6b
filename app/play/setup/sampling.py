"""The sampling panel: how tokens are drawn and when a request ends. Values are remembered between starts."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLineEdit, QPushButton, QVBoxLayout, QWidget

from app import storage
from app.ui.controls import DropDown, Number, SliderValue, Switch
from app.ui.labels import Heading, Note, Row
from engine import InvalidInput, SamplingParams
from engine.config import MOST_SAMPLES, PAGED_MODES

KEY = "sampling/params"
PRESETS: dict[str, SamplingParams] = {
    "story": SamplingParams(max_tokens=200, temperature=0.8, top_p=0.95),
    "greedy": SamplingParams(max_tokens=200, temperature=0.0),
    "balanced": SamplingParams(max_tokens=512, temperature=0.7, top_p=0.9, top_k=40),
    "wild": SamplingParams(max_tokens=200, temperature=1.3, top_p=1.0, min_p=0.05),
}
OWN = "own values"
MOST_ALTERNATIVES = 20
ALTERNATIVES = "Record so many of the likeliest tokens beside each token that is given, with their probabilities"


def stop_strings(text: str) -> tuple[str, ...]:
    r"""Stop strings as typed: one between commas or, for any character, one JSON list; \n means a new line."""
    text = text.strip()
    if text.startswith("["):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise InvalidInput(f"stop: not a JSON list of texts ({error})") from error
        if not isinstance(found, list) or not all(isinstance(s, str) and s for s in found):
            raise InvalidInput("stop: the list must hold texts that are not empty")
        return tuple(found)
    return tuple(s.strip().replace("\\n", "\n") for s in text.split(",") if s.strip())


def stop_text(stop: tuple[str, ...]) -> str:
    """The inverse of `stop_strings`."""
    plain = ", ".join(s.replace("\n", "\\n") for s in stop)
    if not plain.startswith("[") and stop_strings(plain) == stop:
        return plain
    return json.dumps(list(stop), ensure_ascii=False)


class SamplingPanel(QWidget):
    """Edits a `SamplingParams`. `seed` is None while "random" is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("sampling_panel")
        self._showing = False
        self.preset = DropDown("sampling_preset", [(name, name) for name in PRESETS])
        self.preset.setAccessibleName("Preset")
        self.preset.setProperty("role", "quiet")
        self.temperature = SliderValue("sampling_temperature", "Temperature", 0, 2, 0.8)
        self.top_p = SliderValue("sampling_top_p", "Top-p", 0.01, 1, 0.95, step=0.01)
        self.min_p = SliderValue("sampling_min_p", "Min-p", 0, 0.5, 0, step=0.01)
        self.penalty = SliderValue("sampling_repetition_penalty", "Repetition penalty", 0.5, 2, 1)
        self.max_tokens = SliderValue(
            "sampling_max_tokens", "Max tokens", 1, 4096, 200, step=1, decimals=0, logarithmic=True
        )
        self.top_k = Number("sampling_top_k", 0, 1_000_000, 0)
        self.top_k.setSpecialValueText("off")
        self.seed = Number("sampling_seed", -1, 2**31 - 1, -1)
        self.seed.setGroupSeparatorShown(False)
        self.seed.setSpecialValueText("random")
        self.stop = QLineEdit()
        self.stop.setObjectName("sampling_stop")
        self.stop.setPlaceholderText("none")
        self.ignore_eos = Switch("sampling_ignore_eos", "Ignore end of text")
        self.alternatives = Number("sampling_logprobs", 0, MOST_ALTERNATIVES, 0)
        self.alternatives.setSpecialValueText("off")
        self.samples = Number("sampling_n", 1, MOST_SAMPLES, 1)
        self.samples_note = Note("sampling_n_note")
        self.error = Note("sampling_error", "error")
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 12, 12, 12)
        column.setSpacing(8)
        column.addWidget(Heading("Sampling", self.preset))
        self.more = QPushButton()
        self.more.setObjectName("sampling_more")
        self.more.setProperty("role", "quiet")
        self.more.setCheckable(True)
        self.rest = QWidget()
        rest = QVBoxLayout(self.rest)
        rest.setContentsMargins(0, 0, 0, 0)
        rest.setSpacing(8)
        for text, control, tip in (
            ("Temperature", self.temperature, "0 is greedy: always the likeliest token"),
            ("Top-p", self.top_p, "Draw from the likeliest tokens that make up this share; 1 is off"),
            ("Max tokens", self.max_tokens, "How many new tokens a request may have"),
        ):
            column.addWidget(Row(text, control, tip))
        column.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self.rest)
        more: tuple[tuple[str, QWidget, str], ...] = (
            ("Min-p", self.min_p, "Drop tokens below this share of the likeliest one's probability; 0 is off"),
            ("Repetition", self.penalty, "Divides the logits of tokens already seen; 1 is off"),
            ("Top-k", self.top_k, "Draw from the k likeliest tokens; 0 is off"),
            ("Seed", self.seed, "A fixed seed gives the same answers again; request i of a batch takes seed + i"),
            ("Stop at", self.stop, 'End when one of these appears: The end, \\n\\n - or a JSON list, ["a, b", "c"]'),
            ("Ignore EOS", self.ignore_eos, "Go on past the model's own end until max tokens"),
            ("Alternatives", self.alternatives, ALTERNATIVES),
            ("Samples", self.samples, "So many answers to each prompt, which they share in the KV cache"),
        )
        for row in more:
            rest.addWidget(Row(*row))
        rest.addWidget(self.samples_note)
        column.addWidget(self.error)
        self.more.toggled.connect(self._on_more)
        self.more.setChecked(storage.settings().value("sampling/more", "false") == "true")
        self._on_more(self.more.isChecked())
        self.preset.activated.connect(self._on_preset)
        for slider in (self.temperature, self.top_p, self.min_p, self.penalty, self.max_tokens):
            slider.value_changed.connect(self._on_edited)
        self.top_k.valueChanged.connect(self._on_edited)
        self.seed.valueChanged.connect(self._on_edited)
        self.samples.valueChanged.connect(self._on_edited)
        self.alternatives.valueChanged.connect(self._on_edited)
        self.stop.textChanged.connect(self._on_edited)
        self.ignore_eos.toggled.connect(self._on_edited)
        self._recall()

    def params(self) -> SamplingParams:
        """The values as chosen. Raises InvalidInput when a stop string cannot be read."""
        seed = self.seed.value()
        return SamplingParams(
            max_tokens=round(self.max_tokens.value()),
            temperature=round(self.temperature.value(), 4),
            top_p=round(self.top_p.value(), 4),
            top_k=self.top_k.value(),
            min_p=round(self.min_p.value(), 4),
            repetition_penalty=round(self.penalty.value(), 4),
            stop=stop_strings(self.stop.text()),
            seed=None if seed < 0 else seed,
            ignore_eos=self.ignore_eos.isChecked(),
            logprobs=self.alternatives.value(),
            n=self.samples.value() if self.samples.isEnabled() else 1,
        )

    def set_mode(self, mode: str) -> None:
        """Several samples of a prompt are for the modes whose cache they can share; the number is kept."""
        paged = mode in PAGED_MODES
        self.samples.setEnabled(paged)
        self.samples_note.say(
            "" if paged else f"One sample: {mode} has no blocks to share. {' and '.join(PAGED_MODES).capitalize()} do."
        )
        self._on_edited()

    def set_params(self, params: SamplingParams) -> None:
        self._showing = True
        self.temperature.set_value(params.temperature)
        self.top_p.set_value(params.top_p)
        self.min_p.set_value(params.min_p)
        self.penalty.set_value(params.repetition_penalty)
        self.max_tokens.set_value(params.max_tokens)
        self.top_k.setValue(params.top_k)
        self.seed.setValue(-1 if params.seed is None else params.seed)
        self.stop.setText(stop_text(params.stop))
        self.ignore_eos.setChecked(params.ignore_eos)
        self.alternatives.setValue(params.logprobs)
        self.samples.setValue(params.n)
        self._showing = False
        self._on_edited()

    def _on_more(self, on: bool) -> None:
        self.rest.setVisible(on)
        self.more.setText("Fewer  ▴" if on else "More  ▾")
        self.more.setAccessibleName("Fewer sampling values" if on else "More sampling values")
        storage.settings().setValue("sampling/more", "true" if on else "false")

    def _on_preset(self) -> None:
        params = PRESETS.get(self.preset.currentData())
        if params is not None:
            # what is recorded of the drawing is not part of how it is drawn
            self.set_params(replace(params, logprobs=self.alternatives.value()))

    def _on_edited(self) -> None:
        if self._showing:
            return
        try:
            params = self.params()
        except InvalidInput as error:
            self.error.say(str(error))
            return
        self.error.say("")
        name = next((name for name, values in PRESETS.items() if values == replace(params, logprobs=0)), OWN)
        own = self.preset.findText(OWN)
        if name == OWN and own < 0:
            self.preset.addItem(OWN, OWN)
        elif name != OWN and own >= 0:
            self.preset.removeItem(own)
        self.preset.setCurrentIndex(self.preset.findText(name))
        storage.settings().setValue(KEY, json.dumps({**asdict(params), "n": self.samples.value()}))

    def _recall(self) -> None:
        params = PRESETS["story"]
        try:
            kept = json.loads(str(storage.settings().value(KEY, "{}")))
            if kept:
                params = SamplingParams(**{**kept, "stop": tuple(kept.get("stop", ()))})
        except (ValueError, TypeError):  # written by another version, or by hand
            pass
        self.set_params(params)
