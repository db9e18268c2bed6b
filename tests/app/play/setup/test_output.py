"""What answers are held to, as it is chosen on Play."""

import json

import pytest
from pytestqt.qtbot import QtBot

from app.play.setup.sampling import PRESETS, SamplingPanel
from app.sampling.output import OutputForm
from app.sampling.typed_texts import bias_as_typed, typed_bias
from engine import InvalidInput, SamplingParams
from engine.workloads import load_schema

GIVEN = [
    SamplingParams(),
    SamplingParams(regex="[a-z]+, [0-9]"),
    SamplingParams(choices=("yes", "no, thanks")),
    SamplingParams(json_schema='{"type": "integer", "maximum": 9}'),
]


@pytest.fixture
def panel(qtbot: QtBot) -> SamplingPanel:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    panel.show()
    return panel


@pytest.mark.parametrize("params", GIVEN)
def test_what_is_shown_is_what_is_sent_and_is_remembered(params: SamplingParams, qtbot: QtBot) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    panel.set_params(params)
    assert panel.params() == params
    following = SamplingPanel()
    qtbot.addWidget(following)
    assert following.params() == params


def test_each_kind_shows_its_own_editor_and_keeps_what_was_typed(panel: SamplingPanel) -> None:
    output = panel.output
    editors = {"regex": output.regex, "choices": output.choices, "json_schema": output.schema}
    for kind in ("", *editors):
        output.kind.set_value(kind)
        assert [name for name, editor in editors.items() if editor.isVisible()] == [kind] * bool(kind)
    assert json.loads(panel.params().json_schema or "") == load_schema("story"), "there is one to begin with"
    assert output.schemas.currentText() == "story"
    output.schema.setPlainText('{"type": "integer"}')
    assert output.schemas.currentText() == "own"
    output.kind.set_value("regex")
    output.regex.setText("a+")
    assert panel.params() == panel.params().with_(regex="a+", json_schema=None)
    output.kind.set_value("json_schema")
    assert panel.params().json_schema == '{"type": "integer"}'
    output.schemas.set_value("story")
    output.schemas.activated.emit(1)
    assert json.loads(panel.params().json_schema or "") == load_schema("story")


def test_a_preset_leaves_the_grammar_as_it_is(panel: SamplingPanel) -> None:
    panel.set_params(PRESETS["story"].with_(choices=("a", "b")))
    assert panel.preset.currentText() == "story"
    panel.preset.setCurrentIndex(panel.preset.findText("greedy"))
    panel.preset.activated.emit(panel.preset.currentIndex())
    assert panel.params() == PRESETS["greedy"].with_(choices=("a", "b"))


def test_what_is_wrong_is_said_below(panel: SamplingPanel) -> None:
    panel.output.kind.set_value("json_schema")
    panel.output.schema.setPlainText("{")
    assert "is no JSON" in panel.error.text()
    panel.output.kind.set_value("")
    assert panel.error.text() == ""
    panel.form["logit_bias"].control.setText("42")
    assert "is not a token's id and a number" in panel.error.text()


def test_a_missing_library_is_said_before_anything_is_sent(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.sampling.output.grammars_missing", lambda: "llguidance is not installed: remedy")
    form = OutputForm()
    qtbot.addWidget(form)
    assert form.note.text() == ""
    form.kind.set_value("regex")
    assert "the text is free" in form.note.text()
    form.regex.setText("a+")
    assert form.note.text() == "llguidance is not installed: remedy"


def test_a_bias_is_read_as_it_is_shown() -> None:
    for bias in ((), ((42, -5.0), (7, 2.5))):
        assert typed_bias(bias_as_typed(bias)) == bias
    with pytest.raises(InvalidInput, match="such as 42 = -5"):
        typed_bias("a = 3")
