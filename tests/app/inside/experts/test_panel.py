"""The experts panel: what real steps of the demo's mixture sent where, at any moment, and in one click."""

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from pytestqt.qtbot import QtBot

from app.inside.experts import history as kept
from app.inside.experts.history import ExpertHistory
from app.inside.experts.panel import ExpertsPanel
from app.inside.experts.picture import DENSE, EMPTY
from app.inside.step.history import StepHistory
from app.inside.step.story import StepStory, percent
from app.playback.scope import Scope
from app.ui.look import theme
from engine import Engine, EngineConfig, ModelSpec, Parallel, SamplingParams, Trace
from engine.trace import Array, Step

PROMPTS = ("Tell me a story about a fox.", "Tell me a story about an owl and a kite.", "The sun was")


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Three requests, the last of which comes late: steps of one, two and three tokens, and of prompts."""
    with Engine(ModelSpec("demo-moe"), EngineConfig(max_running=8), threads=1) as engine:
        for count, prompt in enumerate(PROMPTS, 1):
            params = SamplingParams(max_tokens=10, temperature=0, ignore_eos=True)
            for stream in [engine.submit(prompt, params) for _ in range(count)]:
                stream.result(60)
        return engine.trace


@pytest.fixture
def panel(qtbot: QtBot, scope: Scope, trace: Trace) -> ExpertsPanel:
    panel = ExpertsPanel(scope)
    qtbot.addWidget(panel)
    panel.resize(900, 460)
    panel.show()
    scope.show(trace)
    scope.catch_up()
    panel.catch_up()
    return panel


def sent_by(step: Step, trace: Trace) -> Array:
    card = trace.header.model
    return (step.expert if len(step.expert) else np.zeros(48, np.int32)).reshape(len(card.expert_layers), card.experts)


def test_at_any_step_the_run_is_the_sum_of_its_steps(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "EVERY", 4)
    steps, history = list(trace.steps), ExpertHistory()
    history.take(trace.records)
    assert len(history) == len(steps) > 20
    assert history.layers == (0, 1, 2, 3, 4, 5)
    for place in (0, 1, 9, 8, 11, 12, len(steps) - 1, 3, 20, 21):
        expected = sum(sent_by(step, trace).astype(np.int64) for step in steps[: place + 1])
        assert (history.sent_until(place, steps.__getitem__) == expected).all(), place
        assert history.tokens[place] == steps[place].count.sum()
    tokens, activated, places = history.sizes_until(len(steps) - 1)
    assert {1, 2, 3} < set(tokens.tolist())
    for one, two, place in zip(tokens.tolist(), activated.tolist(), places.tolist()):
        assert (history.tokens[place], history.activated[place]) == (one, two)
        later = np.flatnonzero((history.tokens == one) & (history.activated == two))
        assert place == later.max()


def test_a_step_of_one_token_activates_two_experts_of_each_layer(panel: ExpertsPanel, trace: Trace) -> None:
    scope, steps = panel.scope, list(trace.steps)
    place = next(i for i, step in enumerate(steps) if step.count.sum() == 1)
    scope.seek(steps[place].ended)
    panel.catch_up()
    assert panel.summary.accessibleName().startswith("12 of 48 experts activated · 25 % of their weights read")
    assert panel.picture.accessibleDescription() == "; ".join(["2 of 8"] * 6)
    rows = panel.facts().rows
    assert len(rows) == 48
    assert [row[:3] for row in rows] == [
        (layer + 1, expert + 1, int(sent_by(steps[place], trace)[layer, expert]))
        for layer in range(6)
        for expert in range(8)
    ]
    shares = [row[4] for row in rows[:8]]
    assert sum(shares) == pytest.approx(1)


def test_a_cell_and_a_dot_say_what_they_are_and_a_click_goes_there(
    qtbot: QtBot, panel: ExpertsPanel, trace: Trace
) -> None:
    panel.grab()
    picture, steps = panel.picture, list(trace.steps)
    grid, plot = picture.grids[0], picture.plot
    assert plot is not None
    layer, expert = np.argwhere(sent_by(panel.scope.step_at(panel._place), trace) > 0)[0].tolist()
    middle = grid.area.topLeft() + QPointF(
        (expert + 0.4) * grid.area.width() / 8, (layer + 0.4) * grid.area.height() / 6
    )
    assert picture.tip(middle).startswith(f"layer {layer + 1}, expert {expert + 1}\n")
    xs, ys, places = plot._dots()
    place = int(places[0])
    where = QPoint(round(float(xs[0])), round(float(ys[0])))
    assert picture.tip(QPointF(where)).startswith(f"step {steps[place].step:,} · 1 token")
    qtbot.mouseClick(picture, Qt.MouseButton.LeftButton, pos=where)
    assert panel.scope.place == place


def test_ranks_that_share_the_experts_out_have_their_part_of_the_grid(qtbot: QtBot, scope: Scope) -> None:
    with Engine(ModelSpec("demo-moe", device="cpu", parallel=Parallel(2, experts=True)), threads=1) as engine:
        engine.submit(PROMPTS[0], SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)).result(60)
        trace = engine.trace
    panel = ExpertsPanel(scope)
    qtbot.addWidget(panel)
    panel.resize(900, 460)
    scope.show(trace)
    scope.catch_up()
    panel.catch_up()
    panel.grab()
    own = list(trace.steps)[panel._place]
    sent = sent_by(own, trace)
    share = sent[:, :4].sum() / sent.sum()
    grid = panel.picture.grids[0]
    assert [part[:2] for part in grid.parts] == [(0, 4), (4, 8)]
    assert grid.parts[0][2] == f"rank 0 · {100 * share:.0f} %"
    assert grid.area.top() > grid.box.top() + 2 * grid.face.height
    factor = sum(max(row[:4].sum(), row[4:].sum()) for row in sent) / (sent.sum() / 2)
    assert panel.summary.accessibleName().endswith(f"busiest rank of each layer × {factor:.2f} of an even share")
    steps = StepHistory()
    steps.take(trace.records)
    ranks = StepStory(own, steps, panel._place, trace.origin or 0.0).ranks
    assert [words.rpartition("; ")[2] for words in ranks.values()] == [
        f"{words} of what goes to experts" for words in (percent(share), percent(1 - share))
    ]


@pytest.mark.parametrize(("width", "height", "plotted"), [(900, 460, True), (460, 460, True), (460, 200, False)])
def test_it_takes_the_room_that_there_is(panel: ExpertsPanel, width: int, height: int, plotted: bool) -> None:
    panel.resize(width, height)
    panel.grab()
    first, second = (grid.box for grid in panel.picture.grids)
    assert not first.intersects(second)
    assert (panel.picture.plot is not None) is plotted
    for grid in panel.picture.grids:
        assert grid.area.bottom() <= panel.picture.height() + 1
        assert grid.area.height() >= 6 * theme.px(9)


def test_other_models_say_that_they_have_no_experts(qtbot: QtBot, scope: Scope, engine: Engine) -> None:
    panel = ExpertsPanel(scope)
    qtbot.addWidget(panel)
    panel.draw()
    assert panel.picture._words == EMPTY
    engine.begin(EngineConfig())
    engine.submit("The sun was", SamplingParams(max_tokens=2)).result(60)
    scope.show(engine.trace)
    scope.catch_up()
    panel.catch_up()
    assert panel.picture._words == DENSE
    assert not panel.facts().rows
