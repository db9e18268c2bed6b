"""Adapters in the window: chosen for a model, gone through by requests, seen on cards, in steps and on the timeline."""

from pathlib import Path

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.chat.presets.dialog import PresetDialog
from app.chat.store.conversations import ConversationStore
from app.chat.store.presets import PresetStore
from app.inside.step.facts import step_facts
from app.inside.step.history import StepHistory
from app.inside.step.story import StepStory
from app.inside.timeline.slots import Timeline
from app.play.prompts import Draft
from app.play.setup.model import ModelPanel
from app.play.setup.sampling import SamplingPanel
from app.plot.image import parts_of
from app.refusals import refusal_words
from app.session.memory.estimate import estimate
from app.session.session import Session
from app.ui.forms.adapters import IN_TURN, AdapterChoice
from app.ui.forms.config_form import ConfigForm
from app.ui.look import theme
from app.window.main_window import MainWindow
from app.words import request_tooltip, whose_words
from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Trace, Workload
from engine.checkpoints import EMBEDDED_ADAPTERS
from engine.trace import Refusal
from tests.engine.adapters_case import save_adapter

GREEDY = SamplingParams(max_tokens=8, temperature=0)
SIZES = {f"model.layers.0.self_attn.{name}": (256, 256) for name in ("q_proj", "o_proj")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_adapter(tmp_path_factory.mktemp("adapters") / "quiet", SIZES, 4, 0)


@pytest.fixture(scope="module")
def traces(folder: Path) -> dict[bool, Trace]:
    """Three requests through an adapter and as many through none: sharing steps, and not."""
    prompts = [f"Tell me a story about a {thing}." for thing in "kite boat map owl drum rose".split()]
    workload = Workload.at_once("mixed", prompts, GREEDY).through(("", "quiet"))
    configs = {mixed: EngineConfig(max_running=4, mixed_adapters=mixed) for mixed in (True, False)}
    with Engine(ModelSpec("demo", adapters=(str(folder),)), threads=1) as engine:
        return {mixed: engine.run(workload, config).result() for mixed, config in configs.items()}


def test_what_ships_is_offered_for_the_demo_and_folders_are_added(
    qtbot: QtBot, session: Session, folder: Path, tmp_path: Path
) -> None:
    panel = ModelPanel(session)
    qtbot.addWidget(panel)

    def offered() -> dict[str, bool]:
        actions = panel.adapters.menu().actions()
        return {action.text(): action.isChecked() for action in actions if action.isCheckable()}

    assert offered() == dict.fromkeys(EMBEDDED_ADAPTERS, False)
    panel.adapters.menu().actions()[1].trigger()
    panel.adapters.add(str(folder))
    assert panel.spec().adapters == (EMBEDDED_ADAPTERS[1], str(folder))
    assert panel.adapters.currentText() == f"{EMBEDDED_ADAPTERS[1]}, quiet"
    panel.adapters.add(str(tmp_path))
    assert "has no adapter_config.json" in panel.error.text()
    assert panel.spec().adapters == (EMBEDDED_ADAPTERS[1], str(folder)), "what is none changes nothing"
    panel.source.set_value("demo-draft")
    assert panel.spec().adapters == (), "another model has others"
    assert offered() == {"quiet": False}, "a folder that was chosen before is remembered"
    odd = [save_adapter(tmp_path / name, SIZES, 4, 0) for name in ("r=16, mine", "pirate", "a/quiet", "b/quiet")]
    panel.source.set_value("demo")
    for each in odd:
        panel.adapters.add(str(each))
    given = f"r-16-mine={odd[0]}", f"pirate-2={odd[1]}", str(odd[2]), f"quiet-2={odd[3]}"
    assert panel.spec().adapters == given, "names that can be given, and each another"
    asked: list[ModelSpec] = []
    panel.load_asked.connect(asked.append)
    panel.open_folder(str(tmp_path))
    assert asked[-1].adapters == (), "another model has others"
    panel.adapters.add(str(folder))
    qtbot.keyClicks(panel.path, "x")
    assert panel.spec().adapters == ()
    panel.set_spec(ModelSpec("demo", adapters=("pirate", f"mine={folder}")))
    assert panel.spec().adapters == ("pirate", f"mine={folder}")


def test_the_estimate_has_them_among_the_weights(folder: Path) -> None:
    plain, more = (estimate(ModelSpec("demo", adapters=given)) for given in ((), (str(folder),)))
    assert more.weights - plain.weights == 4 * 4 * (256 + 256) * 2
    assert "1 adapter: quiet" in "\n".join(more.facts)


def test_requests_go_through_one_or_each_in_turn(qtbot: QtBot) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    row = panel.form.rows["adapter"]
    assert row.isHidden(), "nothing is asked where a model has none"
    panel.offer_adapters(("pirate", "german"))
    assert not row.isHidden()
    draft = Draft("A {fox|owl}.", count=5)

    def through() -> list[str]:
        return [each.params.adapter for each in draft.submissions(panel.params(), panel.turns)]

    assert through() == [""] * 5
    panel.form["adapter"].set("german")
    assert through() == ["german"] * 5
    panel.form["adapter"].set(IN_TURN)
    assert through() == ["", "pirate", "german", "", "pirate"]
    panel.offer_adapters(())
    assert through() == [""] * 5
    panel.offer_adapters(("pirate",))
    assert through() == ["", "pirate", "", "pirate", ""], "the choice is kept for a model that has some"
    again = SamplingPanel()
    qtbot.addWidget(again)
    assert again.params().adapter == ""


def test_the_batching_form_asks_where_there_are_any(qtbot: QtBot) -> None:
    form = ConfigForm("batching")
    qtbot.addWidget(form)
    row = form._form.rows["mixed_adapters"]
    assert row.isHidden()
    form.offer_adapters(True)
    assert not row.isHidden()
    form["mixed_adapters"].set(False)
    assert not form.config(EngineConfig()).mixed_adapters
    form["mode"].set("static")
    assert row.isHidden()
    assert form.config(EngineConfig()).mixed_adapters
    form.set_config(EngineConfig(mixed_adapters=False))
    form.offer_adapters(False)
    assert not row.isHidden(), "what is not as usual is shown"


def test_cards_steps_and_timeline_tell_them_apart(traces: dict[bool, Trace], qtbot: QtBot) -> None:
    for mixed, trace in traces.items():
        views = trace.requests
        assert [whose_words(views[i]) for i in range(4)] == ["", "quiet", "", "quiet"]
        assert "through the adapter quiet" in request_tooltip(views[1])
        history = StepHistory()
        history.take(trace.records)
        stories = [StepStory(step, history, place, 0.0) for place, step in enumerate(trace.steps)]
        told = [story.adapters for story in stories]
        for story, through in zip(stories, told):
            names = [views[request].params.adapter for request in story.step.request.tolist()]
            counts = story.step.count.tolist()
            expected = {name: sum(n for n, own in zip(counts, names) if own == name) for name in names}
            assert through == expected
            assert ("quiet" in story.size_words) is ("quiet" in names)
            facts = [row for row in step_facts(story).rows if row[0] == "adapter"]
            assert {row[1]: row[6] for row in facts} == {name or "no adapter": n for name, n in through.items()}
        assert any(len(through) == 2 for through in told) is mixed
        timeline = Timeline()
        qtbot.addWidget(timeline)
        timeline.feed(trace.records)
        timeline.resize(600, 120)
        assert timeline.told_apart == ("quiet",)
        timeline.grab()
        assert np.array_equal(timeline._colors, [parts_of(theme.request_color(i % 2)) for i in range(6)])
        timeline.color_by_adapter(False)
        assert np.array_equal(timeline._colors, [parts_of(theme.request_color(i)) for i in range(6)])
    refused = next(step for step in traces[False].steps if Refusal.OTHER_ADAPTER in step.refused_reason)
    words = refusal_words(Refusal.OTHER_ADAPTER, refused, traces[False].header)
    assert words.why == "requests of another adapter run, and adapters run one at a time"


def test_a_preset_of_chat_has_one(qtbot: QtBot, tmp_path: Path) -> None:
    store = PresetStore(ConversationStore(tmp_path / "chat.sqlite"))
    first = store.all()[0]
    dialog = PresetDialog(None, store, first.name, ("pirate", "german"))
    qtbot.addWidget(dialog)
    assert not dialog.form.rows["adapter"].isHidden()
    dialog.form["adapter"].set("german")
    dialog._on_edited()
    dialog.keep()
    assert store.all()[0].params.adapter == "german"
    other = PresetDialog(None, store, first.name)
    qtbot.addWidget(other)
    assert other.form["adapter"].get() == "german", "it is kept beside a model that has none"


def test_the_window_sends_through_each_in_turn(qtbot: QtBot, window: MainWindow, folder: Path) -> None:
    page, session = window.page, window.session
    with qtbot.waitSignal(session.config_changed):
        session.start(session.load(ModelSpec("demo", adapters=(str(folder),)), EngineConfig(max_running=8)))
    qtbot.waitUntil(lambda: "1 adapter: quiet" in page.model.facts.text())
    page.sampling.form["adapter"].set(IN_TURN)
    page.composer.prompt.setPlainText("Tell me a story about a fox.")
    page.composer.count.setValue(4)
    page.composer.send()
    qtbot.waitUntil(lambda: len(window.bridge.requests) == 4 and not window.bridge.busy)
    assert [view.params.adapter for view in window.bridge.requests.values()] == ["", "quiet", "", "quiet"]
    chosen = page.model.adapters
    assert isinstance(chosen, AdapterChoice)
    assert chosen.value() == (str(folder),)
    assert page.model.spec() == session.spec
