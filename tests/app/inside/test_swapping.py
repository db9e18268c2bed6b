"""Preemption by swap and a budget that was moved, as the views of a trace tell them."""

import numpy as np
import pytest
from PySide6.QtCore import QPointF
from pytestqt.qtbot import QtBot

from app.inside.kv_map.history import KvHistory
from app.inside.kv_map.host_strip import HostStrip
from app.inside.kv_map.tables import SAMPLES
from app.inside.kv_map.words import summary_words
from app.inside.step.history import StepHistory
from app.inside.step.story import StepStory
from app.inside.timeline.marks import Mark, TimelineMarks
from app.ui.look import theme
from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Trace
from engine.trace import Ended, State, Steered, Step, Submitted, SwapEvent


@pytest.fixture(scope="module")
def traces() -> dict[int, Trace]:
    """By depth: six requests over a pool that has room for three, and a budget that is set on the way."""
    found = {}
    with Engine(ModelSpec("demo"), EngineConfig(cuda_graphs=False), threads=1) as engine:
        memory = 24 * 8 * engine.card.kv_token_bytes
        for depth in (0, 1):
            config = EngineConfig("chunked", 6, 256, 8, memory, depth=depth, preemption="swap", cuda_graphs=False)
            found[depth] = engine.begin(config)
            params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
            streams = [engine.submit([9 + n] * 31, params) for n in range(6)]
            next(iter(streams[0]))
            engine.steer(token_budget=64, prefill_share=0.5)
            for stream in streams:
                stream.result(timeout=60)
    return found


@pytest.mark.parametrize("depth", [0, 1])
def test_the_map_knows_what_lies_on_the_host_and_what_came_back(traces: dict[int, Trace], depth: int) -> None:
    trace, history = traces[depth], KvHistory(every=4, whole=3)
    records, most, kept = list(trace.records), 0, []
    for record in records:
        history.take([record])
        tip = history.tip
        assert tip is not None
        if isinstance(record, Step):
            if depth == 0:
                assert tip.kinds().used == record.kv_used
            kept.append((dict(tip.swapped), tip.filled.copy()))
        most = max(most, sum(tip.swapped.values()))
        assert ("on the host" in summary_words(tip)) is bool(tip.swapped)
    assert most >= 6
    assert not tip.swapped
    for place in (3, 9, 30, len(kept) // 2, len(kept) - 2, 5):
        state = history.at(place, records)
        assert state.swapped == kept[place][0]
        assert np.array_equal(state.filled[state.references > 0], kept[place][1][state.references > 0])


def test_the_map_draws_the_blocks_on_the_host_a_square_each(traces: dict[int, Trace], qtbot: QtBot) -> None:
    records, history, strip = list(traces[0].records), KvHistory(), HostStrip()
    qtbot.addWidget(strip)
    strip.resize(600, strip.sizeHint().height())
    place = next(i for i, record in enumerate(r for r in records if isinstance(r, Step)) if record.swapped_out)
    history.take(records)
    state = history.at(place, records)
    strip.show_state(state)
    told = {key // SAMPLES: blocks for key, blocks in state.swapped.items()}
    assert told
    assert strip.words() == ", ".join(f"#{request}: {blocks} blocks" for request, blocks in sorted(told.items()))
    drawn = strip.grab().toImage()
    for box, i in strip._places:
        request = sorted(told)[i]
        assert strip.tip(QPointF(box.x() + 1, 5)).startswith(f"request {request}: {told[request]} blocks")
        assert drawn.pixelColor(int(box.x()) + 2, strip.height() // 2).name() == theme.request_color(request).name()
        assert box.width() == pytest.approx(told[request] * theme.px(10))
    strip.resize(130, strip.height())
    strip.grab()
    assert sum(box.width() for box, _ in strip._places) < 60


def marks_of(trace: Trace) -> TimelineMarks:
    """Those of a whole trace."""
    marks = TimelineMarks()
    for record in trace.records:
        match record:
            case Step():
                marks.step(record, record.started, record.ended, 0.0)
            case Submitted():
                marks.submit(record, 0.0)
            case Ended():
                marks.end(record, 0.0)
            case Steered():
                marks.steered(record, 0.0)
            case _:
                pass
    return marks


@pytest.mark.parametrize("depth", [0, 1])
def test_the_timeline_tells_a_swap_from_a_preemption_and_marks_the_budget(traces: dict[int, Trace], depth: int) -> None:
    trace, marks = traces[depth], marks_of(traces[depth])
    steps = [record for record in trace.records if isinstance(record, Step)]
    seen = marks.marks()
    counts = {kind: int((seen.kind == kind).sum()) for kind in Mark}
    swapped = sum(len(step.swapped_out) for step in steps)
    assert counts[Mark.SWAPPED_OUT] == counts[Mark.SWAPPED_IN] == swapped > 0
    assert counts[Mark.PREEMPTED] == sum(len(step.preempted) for step in steps) - swapped
    back = seen.where(seen.kind == Mark.SWAPPED_IN)
    assert (back.slot >= 0).all()
    assert back.count.sum() == sum(int((step.swap_event == SwapEvent.IN).sum()) for step in steps)
    assert counts[Mark.BUDGET_SET] == 1
    assert marks.budgets == ["64 tokens a step, 50% of it for prompts, 6 may run"]


def test_a_step_says_who_went_out_and_who_came_back(traces: dict[int, Trace]) -> None:
    history, told = StepHistory(), []
    for record in traces[0].records:
        history.take([record])
    steps = [record for record in traces[0].records if isinstance(record, Step)]
    for place, step in enumerate(steps):
        story = StepStory(step, history, place, 0.0)
        told.append((len(story.swapped_out), len(story.swapped_in)))
        assert sum(story.swapped_out.values()) == int((step.swap_event == SwapEvent.OUT).sum())
        assert set(story.swapped_out) <= set(story.preempted)
    assert sum(out for out, _ in told) == sum(back for _, back in told) > 0


def test_a_request_that_is_swapped_out_says_so(traces: dict[int, Trace]) -> None:
    trace = traces[0]
    for step in trace.steps:
        for request, branch in step.swapped_out:
            assert trace.requests[request].samples[branch].at(step.ended).state is State.SWAPPED
