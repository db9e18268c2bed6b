"""Prefixes that are offloaded to host memory, as the views of a trace tell them."""

from collections import Counter

import numpy as np
import pytest
from PySide6.QtCore import QPointF
from pytestqt.qtbot import QtBot

from app.inside.kv_map.history import KvHistory
from app.inside.kv_map.host_strip import HostStrip, runs
from app.inside.kv_map.state import CACHED, FREE, KvState
from app.inside.kv_map.state import Mark as BlockMark
from app.inside.kv_map.words import summary_words
from app.inside.step.facts import step_facts
from app.inside.step.history import StepHistory
from app.inside.step.story import StepStory
from app.inside.timeline.marks import Mark
from app.inside.timeline.words import mark_words
from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Trace
from engine.serving.watch.recent import Recent
from engine.trace import Step, SwapEvent
from tests.app.inside.test_swapping import marks_of

APPS, TURNS, OPENING = 4, 3, 64


@pytest.fixture(scope="module")
def traces() -> dict[int, Trace]:
    """By depth: four prompts with a beginning each take turns over a pool that has room for the blocks of two."""
    traces = {}
    with Engine(ModelSpec("demo"), EngineConfig(cuda_graphs=False), threads=1) as engine:
        for depth in (0, 1):
            values = {"prefix_caching": True, "offload_prefixes": True, "depth": depth, "cuda_graphs": False}
            memory = 22 * 8 * engine.card.kv_token_bytes
            traces[depth] = engine.begin(EngineConfig("continuous", 2, 256, 8, memory, **values))  # type: ignore[arg-type]
            params = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
            turns = [(turn, app) for turn in range(TURNS) for app in range(APPS)]
            streams = [engine.submit([20 + app] * OPENING + [9, 90 + turn], params) for turn, app in turns]
            for stream in streams:
                stream.result(timeout=60)
    return traces


@pytest.fixture
def trace(traces: dict[int, Trace]) -> Trace:
    return traces[0]


def steps_of(trace: Trace) -> list[Step]:
    return [record for record in trace.records if isinstance(record, Step)]


def test_the_map_knows_whose_prefix_lies_on_the_host_at_any_step(trace: Trace) -> None:
    records, history, told = list(trace.records), KvHistory(every=4, whole=3), list[np.ndarray]()
    kept: dict[int, int] = {}  # by plain arithmetic
    for record in records:
        history.take([record])
        if not isinstance(record, Step):
            continue
        for event, host in zip(record.swap_event.tolist(), record.swap_host.tolist()):
            kept |= {host: 1} if event == SwapEvent.OFFLOADED else {}
            if event == SwapEvent.FORGOTTEN:
                del kept[host]
        assert history.tip is not None
        assert set(np.flatnonzero(history.tip.kept != FREE)) == set(kept)
        assert ("on the host" in summary_words(history.tip)) is bool(kept)
        assert history.tip.kinds().used == record.kv_used
        told.append(history.tip.kept.copy())
    assert len(kept) >= 2 * OPENING // 8
    assert {run.request for run in runs(history.tip)} >= {0, 1}
    for place in (len(told) - 2, 3, len(told) // 2, 5):
        assert np.array_equal(history.at(place, records).kept, told[place])


def test_what_came_back_is_full_and_marked(trace: Trace) -> None:
    records, history = list(trace.records), KvHistory()
    history.take(records)
    back = [place for place, step in enumerate(steps_of(trace)) if len(step.found_below)]
    assert back
    for place in back:
        step, state = steps_of(trace)[place], history.at(place, records)
        found = step.swap_block[step.swap_event == SwapEvent.FOUND]
        assert (state.filled[found] == state.size).all()
        assert (state.event[found] == BlockMark.FOUND).all()


def test_the_strip_wraps_and_tells_whose_a_square_is(trace: Trace, qtbot: QtBot) -> None:
    history, strip = KvHistory(), HostStrip()
    history.take(list(trace.records))
    state = history.tip
    assert isinstance(state, KvState)
    qtbot.addWidget(strip)
    strip.show_state(state)
    strip.resize(260, 20)
    strip.resize(260, strip.sizeHint().height())
    strip.grab()
    kept = int((state.kept != FREE).sum())
    assert kept > 24
    assert len({box.y() for box, _ in strip._places}) > 1
    squares = Counter[int]()
    for box, i in strip._places:
        run = strip._runs[i]
        squares[i] += round(box.width() / 10)
        assert strip.tip(QPointF(box.x() + 1, box.center().y())).startswith(f"prefix of #{run.request}: {run.blocks} ")
    assert sum(squares.values()) == kept, "there is room for all of them"
    strip.resize(130, strip.height())
    strip.grab()
    assert sum(box.width() for box, _ in strip._places) < 10 * kept
    state.kept[:] = np.arange(state.hosts)
    strip.show_state(state)
    assert strip.words().count(",") == 8
    assert strip.words().endswith(f"{state.hosts - 8} blocks more")


def test_of_a_window_that_came_late_nobody_knows_whose_they_are(trace: Trace) -> None:
    recent, late, whole = Recent(), KvHistory(), KvHistory()
    for record in trace.records:
        recent.feed(record)
    late.take(recent.records())
    whole.take(list(trace.records))
    assert late.tip is not None
    assert whole.tip is not None
    (run,) = runs(late.tip)
    assert run.request == CACHED
    assert run.words() == f"prefixes: {sum(each.blocks for each in runs(whole.tip))} blocks"


@pytest.mark.parametrize("depth", [0, 1])
def test_the_timeline_tells_a_hit_below_from_one_in_the_pool(traces: dict[int, Trace], depth: int) -> None:
    steps, seen = steps_of(traces[depth]), marks_of(traces[depth]).marks()
    below = seen.where(seen.kind == Mark.FROM_HOST)
    requests = {request for step in steps for request in step.found_below.tolist()}
    assert set(below.request.tolist()) == requests
    assert requests
    reused = {int(r): int(n) for s in steps for r, n in zip(s.request, s.reused) if n}
    assert [reused[request] for request in below.request.tolist()] == below.count.tolist()
    assert "came from host memory" in mark_words(Mark.FROM_HOST, 1, 0.0, 64)


def test_a_step_says_what_made_room_and_who_found_it_again(trace: Trace) -> None:
    history = StepHistory()
    history.take(list(trace.records))
    offloaded = found = 0
    for place, step in enumerate(steps_of(trace)):
        story = StepStory(step, history, place, 0.0)
        offloaded += story.offloaded
        found += sum(story.found_below.values())
        words = [str(row[1]) for row in step_facts(story).rows]
        assert ("prefixes offloaded" in words) is (story.offloaded > 0)
        assert ("prefix back" in words) is bool(story.found_below)
    assert offloaded
    assert found == sum(len(step.found_below) for step in steps_of(trace))
    assert found >= OPENING // 8
