"""The attention panel: what real tokens of the demo attended to, at any moment, by any head, and in one click."""

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from pytestqt.qtbot import QtBot

from app.inside.attention import history as kept
from app.inside.attention.history import UNKNOWN, AttentionHistory, Seen, half, visible
from app.inside.attention.panel import AttentionPanel
from app.inside.attention.picture import EMPTY, NOBODY, strongest
from app.playback.scope import Scope
from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Trace
from engine.trace import Attended, Step, Submitted, attended

PROMPT = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]


@pytest.fixture(scope="module")
def trace() -> Trace:
    """A request that nobody watches, one that is watched, and one with two samples beside it."""
    with Engine(ModelSpec("demo"), EngineConfig(max_running=8), threads=1) as engine:
        asked = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
        engine.submit(PROMPT, asked).result(60)
        first = engine.submit(PROMPT, asked.with_(attention=True))
        first.result(60)
        engine.submit("The owl", asked.with_(attention=True, n=2, max_tokens=9, temperature=1.0, seed=1)).results(60)
        return engine.trace


@pytest.fixture
def panel(qtbot: QtBot, scope: Scope, trace: Trace) -> AttentionPanel:
    panel = AttentionPanel(scope)
    qtbot.addWidget(panel)
    panel.resize(900, 460)
    panel.show()
    scope.show(trace)
    scope.select(1)
    scope.catch_up()
    panel.catch_up()
    return panel


def told(trace: Trace, request: int, branch: int = 0) -> list[Attended]:
    every = (each for step in trace.steps for each in attended(step, trace.header))
    return [each for each in every if (each.request, each.branch) == (request, branch)]


def at_token(panel: AttentionPanel, trace: Trace, token: int) -> None:
    panel.scope.seek(trace.requests[1].token_times[token])
    panel.catch_up()


def test_any_token_is_shown_as_the_records_tell_it(panel: AttentionPanel, trace: Trace) -> None:
    every, view = told(trace, 1), trace.requests[1]
    assert len(every) == 20
    for token in (0, 7, 19, 3):
        at_token(panel, trace, token)
        focus = panel.picture.focus
        assert focus is not None
        assert focus.token == token
        assert (focus.weights == every[token].weights).all()
        assert "".join(focus.sample.context(token)) == view.prompt + "".join(focus.sample.texts[:token])
        given = every[token].weights.mean((0, 1))
        rows = panel.facts().rows
        assert [row[3] for row in rows] == pytest.approx(given.tolist())
        assert rows[0][1:3] == ("<s>", "prompt")
        assert len(rows) == len(view.prompt_ids) + token
        said = panel.summary.accessibleName()
        assert f"of request 1 reads K and V of {len(rows)} tokens" in said
        assert said.endswith(f"half of its attention is on {half(given)}")


def test_the_text_is_the_prompts_and_the_answers(panel: AttentionPanel, trace: Trace) -> None:
    view, focus = trace.requests[1], panel.picture.focus
    assert focus is not None
    assert "".join(focus.sample.prompt) == view.prompt
    assert "".join(focus.sample.texts) == view.text


def test_a_head_is_chosen_by_a_click_or_a_key_and_unchosen_by_another(
    qtbot: QtBot, panel: AttentionPanel, trace: Trace
) -> None:
    at_token(panel, trace, 19)
    panel.grab()
    picture, weights = panel.picture, told(trace, 1)[19].weights
    assert picture.heads is not None
    where = picture.heads.cell(2, 4).center().toPoint()
    qtbot.mouseClick(picture, Qt.MouseButton.LeftButton, pos=where)
    assert panel.seen == Seen(2, 4)
    panel.catch_up()
    assert [row[3] for row in panel.facts().rows] == pytest.approx(weights[2, 4].tolist())
    assert panel.summary.accessibleName().startswith("layer 3, head 5 · ")
    panel.grab()
    assert picture.lines is not None
    shown = picture.lines.weights
    np.testing.assert_allclose(shown[-1], weights[2, 4])
    assert (shown[0, -1], shown[-1, 0]) == (0, pytest.approx(weights[2, 4, 0]))
    qtbot.keyClick(picture, Qt.Key.Key_Down)
    assert panel.seen == Seen(2, 5)
    panel.catch_up()
    qtbot.mouseClick(picture, Qt.MouseButton.LeftButton, pos=picture.heads.cell(2, 5).center().toPoint())
    assert panel.seen == Seen()
    panel.catch_up()
    qtbot.keyClick(picture, Qt.Key.Key_Up)
    assert panel.seen == Seen(5, 7)


def test_a_click_on_a_token_or_a_line_goes_to_its_step(qtbot: QtBot, panel: AttentionPanel, trace: Trace) -> None:
    times, prompt = trace.requests[1].token_times, len(trace.requests[1].prompt_ids)
    for token in (12, 4):
        at_token(panel, trace, 19)
        panel.grab()
        picture = panel.picture
        assert picture.text is not None
        assert picture.lines is not None
        spot = next(spot for spot in picture.text.spots if spot.token == prompt + token)
        qtbot.mouseClick(picture, Qt.MouseButton.LeftButton, pos=spot.box.center().toPoint())
        assert panel.scope.moment == times[token]
        area = picture.lines.area
        line = QPointF(area.left() + 3, area.top() + (token + 0.5) / 20 * area.height()).toPoint()
        qtbot.mouseClick(picture, Qt.MouseButton.LeftButton, pos=line)
        assert panel.scope.moment == times[token]
    before = panel.scope.moment
    asked = picture.text.spots[0].box.center().toPoint()
    qtbot.mouseClick(picture, Qt.MouseButton.LeftButton, pos=asked)  # of the prompt no step is
    assert panel.scope.moment == before


def test_what_is_under_the_pointer_is_told(panel: AttentionPanel, trace: Trace) -> None:
    at_token(panel, trace, 10)
    panel.grab()
    picture, focus = panel.picture, panel.picture.focus
    assert focus is not None
    assert picture.text is not None
    assert picture.heads is not None
    assert picture.lines is not None
    given, context = focus.weights.mean((0, 1)), focus.sample.context(10)
    spot = picture.text.spots[3]
    said = f"“{visible(focus.sample.texts[10])}” gives “{visible(context[3])}” {given[3]:.1%}"
    assert picture.tip(spot.box.center()) == said
    assert picture.tip(picture.text.spots[-1].box.center()) == ""  # itself
    head = picture.tip(picture.heads.cell(1, 2).center()).splitlines()
    assert head == ["layer 2, head 3", *strongest(focus, Seen(1, 2))]
    area = picture.lines.area
    last = QPointF(area.left() + area.width() * 3.5 / len(context), area.bottom() - 1)
    assert picture.tip(last) == said
    assert picture.tip(area.topRight() + QPoint(-1, 1)) == ""  # which the first token could not know


def test_the_newest_is_shown_where_nobody_is_selected_and_the_sample_that_told_last(
    panel: AttentionPanel, trace: Trace
) -> None:
    scope = panel.scope
    scope.select(-1)
    scope.follow()
    panel.catch_up()
    focus = panel.picture.focus
    assert focus is not None
    assert focus.sample.request == 2
    scope.seek(trace.requests[1].token_times[5])
    panel.catch_up()
    assert panel.picture.focus is not None
    assert (panel.picture.focus.sample.request, panel.picture.focus.token) == (1, 5)
    scope.select(2)  # which has not begun
    panel.catch_up()
    assert panel.picture.focus is None
    for branch in (0, 1):
        scope.seek(trace.requests[2].samples[branch].token_times[-1])
        panel.catch_up()
        assert panel.picture.focus is not None
        assert (panel.picture.focus.weights == told(trace, 2, panel.picture.focus.sample.branch)[-1].weights).all()


def test_a_step_that_came_since_the_frame_began_is_left_to_the_next(qtbot: QtBot, scope: Scope, trace: Trace) -> None:
    records = list(trace.records)
    last = max(i for i, record in enumerate(records) if isinstance(record, Step) and len(record.attended))
    growing, panel = Trace(records[:last]), AttentionPanel(scope)
    qtbot.addWidget(panel)
    scope.show(growing)
    scope.take_in()
    for record in records[last:]:
        growing.append(record)
    panel.catch_up()
    before = panel.picture.focus
    assert before is not None
    scope.take_in()
    panel.catch_up()
    assert panel.picture.focus is not None
    assert panel.picture.focus.sample.times[panel.picture.focus.token] == records[last].ended
    assert before.sample.times[before.token] < records[last].ended


def test_tokens_that_were_said_elsewhere_have_no_text(trace: Trace) -> None:
    """As of a stream that goes on after its engine died: the first tokens are nowhere in this trace."""
    history, records = AttentionHistory(), list(trace.records)
    first = next(step for step in trace.steps if 1 in step.request[step.token_row] and len(step.attended))
    history.take([record for record in records if record is not first])
    sample = history.watched[1, 0]
    assert sample.texts[0] == UNKNOWN
    assert len(sample.texts) == 20
    assert sample.last_by(first.ended) == -1


def test_few_weights_are_kept_of_a_long_answer(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT", 3)
    history, steps = AttentionHistory(), list(trace.steps)
    history.take(trace.records)
    sample, every = history.watched[1, 0], told(trace, 1)
    for token in (4, 5, 6, 7, 4):
        assert (history.told(sample, token, steps.__getitem__).codes == every[token].codes).all()
    assert len(history._told[1]) == 3
    tokens, _ = history.lines(sample, 19, 10, Seen(), steps.__getitem__)
    assert tokens == [17, 18, 19], "none is read anew for each painting"


@pytest.mark.parametrize("size", [(900, 460), (520, 420), (240, 160), (1400, 900)])
def test_it_is_laid_out_within_its_bounds(panel: AttentionPanel, size: tuple[int, int]) -> None:
    panel.resize(*size)
    panel.catch_up()
    panel.grab()
    picture = panel.picture
    room = picture.rect().toRectF()
    assert picture.text is not None
    assert picture.text.spots[-1].token == len(panel.facts().rows)
    assert all(room.contains(spot.box) for spot in picture.text.spots)
    for part in (picture.heads, picture.lines):
        if part is not None:
            assert room.contains(part.area)
            assert part.area.top() > picture.text.bottom or part.area.left() > picture.text.box.right()
    assert (picture.heads is None) == (size[1] < 200)


def test_what_is_missing_is_said(qtbot: QtBot, scope: Scope, trace: Trace) -> None:
    panel = AttentionPanel(scope)
    qtbot.addWidget(panel)
    panel.resize(600, 400)
    panel.show()
    panel.catch_up()
    assert panel.picture.accessibleDescription() == EMPTY
    records = list(trace.records)
    second = next(i for i, record in enumerate(records) if isinstance(record, Submitted) and record.request == 1)
    unwatched = records[:second]
    scope.show(Trace(unwatched))
    scope.catch_up()
    panel.catch_up()
    assert panel.picture.accessibleDescription() == NOBODY
    assert not panel.facts().rows
