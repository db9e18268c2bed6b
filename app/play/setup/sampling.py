"""The sampling panel: how tokens are drawn and when a request ends. Values are remembered between starts."""

import contextlib
import json
from dataclasses import asdict, replace

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app import storage
from app.language import tr
from app.sampling.fields import DRAWING, IDLE_IN_BEAMS, OF_BEAMS, sampling_fields
from app.sampling.output import OutputForm
from app.ui.controls import DropDown, button
from app.ui.forms.adapters import IN_TURN, NONE, ThroughChoice
from app.ui.forms.form import Form
from app.ui.labels import Heading, Note
from app.ui.layout.boxes import column, held
from engine import InvalidInput, SamplingParams
from engine.config import PAGED_MODES

KEY = "sampling/params"
TITLES = {"story": tr("story"), "greedy": tr("greedy"), "balanced": tr("balanced"), "wild": tr("wild")}
PRESETS: dict[str, SamplingParams] = {
    "story": SamplingParams(max_tokens=200, temperature=0.8, top_p=0.95),
    "greedy": SamplingParams(max_tokens=200, temperature=0.0),
    "balanced": SamplingParams(max_tokens=512, temperature=0.7, top_p=0.9, top_k=40),
    "wild": SamplingParams(max_tokens=200, temperature=1.3, top_p=1.0, min_p=0.05),
}
OWN = tr("own values")
BESIDE = ("logprobs", "attention", "adapter")  # what is told of the drawing, and what draws, is no preset's
ALWAYS = ("adapter", "temperature", "top_p", "max_tokens")  # the others are one click away


class SamplingPanel(QWidget):
    """Edits a `SamplingParams`. Its seed is None while "random" is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("sampling_panel")
        self.preset = DropDown("sampling_preset", [(TITLES[name], name) for name in PRESETS], tr("Preset"))
        self.preset.setProperty("role", "quiet")
        self.form = Form(sampling_fields(), self)
        self.output = OutputForm()
        self._mode = ""  # all that there is matters to it
        self._adapters: tuple[str, ...] = ()
        self.samples_note = Note("sampling_n_note")
        self.error = Note("sampling_error", "error")
        self.more = button("sampling_more", role="quiet", checkable=True)
        rows = self.form.rows
        self.rest = held(column(*(rows[n] for n in rows if n not in ALWAYS), self.samples_note, spacing=8))
        always = Heading(tr("Sampling"), self.preset), *(rows[name] for name in ALWAYS)
        more = (self.more, 0, Qt.AlignmentFlag.AlignLeft)
        self.setLayout(column(*always, self.output, more, self.rest, self.error, margins=(12, 12, 12, 12), spacing=8))
        self.more.toggled.connect(self._on_more)
        self.more.setChecked(storage.settings().value("sampling/more", "false") == "true")
        self._on_more(self.more.isChecked())
        self.preset.activated.connect(self._on_preset)
        self.form.edited.connect(self._on_edited)
        self.output.edited.connect(self._on_edited)
        self._recall()
        self.offer_adapters(())

    def params(self) -> SamplingParams:
        """The values as chosen. Raises InvalidInput when one cannot be read, or two do not go together."""
        values = self.form.values(self._mode) | self.output.values()
        if values["beam_width"] > 1:
            plain, idle = SamplingParams(), {*IDLE_IN_BEAMS, *self.output.values()} - {*DRAWING}
            values |= {name: getattr(plain, name) for name in idle}
        if values["adapter"] == IN_TURN:
            values["adapter"] = NONE
        return SamplingParams(**values)

    @property
    def turns(self) -> tuple[str, ...]:
        """What requests go through in turn, the model as it is first; empty where all go through one."""
        return (NONE, *self._adapters) if self.form["adapter"].get() == IN_TURN else ()

    def offer_adapters(self, names: tuple[str, ...]) -> None:
        """Those of the model that is loaded."""
        self._adapters = names
        box = self.form["adapter"].control
        assert isinstance(box, ThroughChoice)
        box.offer_names(names, in_turn=True)
        self.form.rows["adapter"].setVisible(bool(names))

    def set_mode(self, mode: str) -> None:
        """Several samples of a prompt, and beams, are for the modes whose cache they can share; the numbers are
        kept."""
        self._mode = mode
        self._on_edited()

    def _enable(self) -> None:
        """What matters to the mode, and to beams or to drawing."""
        form, mode = self.form, self._mode
        paged = not mode or form["n"].counts(mode)
        beams = paged and form["beam_width"].get() > 1
        form["beam_width"].control.setEnabled(paged)
        for name in IDLE_IN_BEAMS:
            form[name].control.setEnabled(not beams and (paged or name != "n"))
        for name in OF_BEAMS:
            form[name].control.setEnabled(beams)
        self.output.setEnabled(not beams)
        *most, last = PAGED_MODES
        alone = tr(
            "One sample: {mode} has no blocks to share. {one} and {other} do.",
            mode=mode,
            one=", ".join(most).capitalize(),
            other=last,
        )
        weighed = tr("Beams weigh the model's own probabilities: nothing is drawn.")
        self.samples_note.say(weighed if beams else "" if paged else alone)

    def set_params(self, params: SamplingParams) -> None:
        self.form.show(params)
        self.output.show_params(params)
        self._on_edited()

    def _on_more(self, on: bool) -> None:
        self.rest.setVisible(on)
        self.more.setText(tr("Fewer  ▴") if on else tr("More  ▾"))
        self.more.setAccessibleName(tr("Fewer sampling values") if on else tr("More sampling values"))
        storage.settings().setValue("sampling/more", "true" if on else "false")

    def _on_preset(self) -> None:
        params = PRESETS.get(self.preset.currentData())
        if params is not None:
            self.form.show(replace(params, **{name: self.form[name].get() for name in BESIDE}))
            self._on_edited()

    def _on_edited(self) -> None:
        self._enable()
        try:
            params = self.params()
        except InvalidInput as error:
            self.error.say(str(error))
            return
        self.error.say("")
        drawn = replace(params, logprobs=0, attention=False, regex=None, choices=(), json_schema=None, adapter=NONE)
        name = next((name for name, values in PRESETS.items() if values == drawn), OWN)
        if self.preset.count() > len(PRESETS):
            self.preset.removeItem(len(PRESETS))
        if name == OWN:
            self.preset.addItem(OWN, OWN)
        self.preset.set_value(name)
        kept = {name: self.form[name].get() for name in (*IDLE_IN_BEAMS, "beam_width")}  # idle ones too
        storage.settings().setValue(KEY, json.dumps({**asdict(params), **kept}))

    def _recall(self) -> None:
        params, beams = PRESETS["story"], 1
        with contextlib.suppress(ValueError, TypeError):  # written by another version, or by hand
            kept = json.loads(str(storage.settings().value(KEY, "{}")))
            if kept:
                params = SamplingParams(**{**kept, "stop": tuple(kept.get("stop", ())), "beam_width": 1})
                beams = SamplingParams(beam_width=kept.get("beam_width", 1)).beam_width
        self.set_params(params)
        self.form["beam_width"].set(beams)
