"""A cache that forgets, as the views of a trace tell it."""

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.inside.attention.history import GONE, whole
from app.inside.attention.panel import AttentionPanel
from app.inside.kv_map.block_table import HEADING, lines_of
from app.inside.kv_map.history import KvHistory
from app.inside.step.panel import StepInspector
from app.inside.step.times import attention
from app.playback.scope import Scope
from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Submission, Trace
from engine.serving.watch.recent import Recent
from engine.trace import Step, attended, count_work

SIZE, SINKS, WINDOW, NEW = 8, 4, 24, 80


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Two stories, of which the first tells what it attends to; the newest three blocks and the first are kept."""
    with Engine(ModelSpec("demo"), EngineConfig(cuda_graphs=False), threads=1) as engine:
        trace = engine.begin(EngineConfig(block_size=SIZE, kv_window=WINDOW, kv_sinks=SINKS, cuda_graphs=False))
        asked = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
        prompts = (("Tell me a story about a fox.", asked.with_(attention=True)), ("The owl", asked))
        for stream in engine.submit_many([Submission(*each) for each in prompts]):
            stream.result(60)
    return trace


def place_near_the_end(trace: Trace) -> int:
    """A step in which the first story has forgotten much, and still goes on."""
    return [i for i, step in enumerate(trace.steps) if len(step.forgotten) and (step.request == 0).any()][-4]


def test_the_block_table_counts_what_is_forgotten_at_any_step(trace: Trace) -> None:
    records, history = list(trace.records), KvHistory(every=4, whole=3)
    history.take(records)
    place = place_near_the_end(trace)
    for at in (place, place // 2, place):
        step, state = trace.steps[at], history.at(at, records)
        row = step.request.tolist().index(0)
        gone = int(step.forgotten[row]) // SIZE if len(step.forgotten) else 0
        lines = lines_of(state, 0)
        blocks = [line for line in lines if line.block != HEADING]
        end = int(step.first[row] + step.count[row])
        assert [line.place for line in blocks][-1] == (end - 1) // SIZE
        assert sum(round(line.share * SIZE) for line in blocks) == end - gone * SIZE
        said = [line.text for line in lines if line.block == HEADING]
        assert said == ([f"{gone} blocks are forgotten" if gone > 1 else "1 block is forgotten"] if gone else [])
        assert state.kinds().used == step.kv_used
    assert gone > 4


def test_who_comes_late_sees_the_same_tables(trace: Trace) -> None:
    place, recent, history, late = place_near_the_end(trace), Recent(), KvHistory(), KvHistory()
    for record in trace.records:
        recent.feed(record)
        history.take([record])
        if isinstance(record, Step) and record is trace.steps[place]:
            break
    late.take(list(recent.records()))
    assert history.tip is not None
    assert late.tip is not None
    for request in (0, 1):
        ours, theirs = lines_of(history.tip, request), lines_of(late.tip, request)
        assert [(line.block, line.place, line.text) for line in ours] == [
            (line.block, line.place, line.text) for line in theirs
        ]


def test_what_is_forgotten_is_neither_read_nor_computed_with(trace: Trace) -> None:
    assert trace.header is not None
    step = trace.steps[place_near_the_end(trace)]
    rows, _ = attention(step, trace.header)
    end = step.first + step.count - step.forgotten
    assert rows.positions.tolist() == end.tolist()
    card, work = trace.header.model, count_work(trace.header, [step])
    layer_bytes = card.kv_token_bytes // card.layers
    assert work.row_bytes.tolist() == (layer_bytes * card.layers * (end + 1)).tolist()


def test_the_step_tells_what_a_row_finds_and_what_is_forgotten(trace: Trace, scope: Scope, qtbot: QtBot) -> None:
    inspector = StepInspector(scope)
    qtbot.addWidget(inspector)
    inspector.show()
    scope.show(trace)
    place = place_near_the_end(trace)
    step = trace.steps[place]
    scope.seek(step.ended)
    scope.catch_up()
    inspector.catch_up()
    row = step.request.tolist().index(0)
    forgotten, cached = int(step.forgotten[row]), int(step.first[row] - step.forgotten[row])
    assert inspector.view.rows.row_text(row).endswith(f"{cached} cached before · {forgotten} forgotten")


def test_the_attention_panel_strikes_out_what_is_no_longer_there(trace: Trace, scope: Scope, qtbot: QtBot) -> None:
    panel = AttentionPanel(scope)
    qtbot.addWidget(panel)
    panel.resize(900, 460)
    panel.show()
    scope.show(trace)
    scope.select(0)
    scope.catch_up()
    panel.catch_up()
    focus = panel.picture.focus
    assert focus is not None
    assert trace.header is not None
    told = [each for step in trace.steps for each in attended(step, trace.header) if each.request == 0]
    kept, gone = told[focus.token].tokens, told[focus.token].forgotten
    assert gone.start == SIZE
    assert len(gone) > 4 * SIZE
    assert focus.forgotten == gone
    weights = whole(told[focus.token])
    assert not weights[..., gone.start : gone.stop].any()
    assert (weights[..., kept] == told[focus.token].weights).all()
    panel.grab()
    text = panel.picture.text
    assert text is not None
    spot = next(spot for spot in text.spots if spot.token in gone)
    assert panel.picture.tip(spot.box.center()) == f"“{spot.text}” is forgotten: its K and V are in the cache no more"
    assert panel.summary.accessibleName().split(" · ")[0].endswith(f"{len(gone)} are forgotten")
    assert {row[2] for row in panel.facts().rows} == {"prompt", "answer", "forgotten"}
    tokens, lines = focus.lines(40)
    for token, line in zip(tokens, lines):
        missing = told[token].forgotten
        assert np.flatnonzero(line == GONE).tolist() == list(missing)
