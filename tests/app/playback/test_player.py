"""A trace shown up to a moment: forwards, backwards, as it grows, within a frame's time."""

from math import inf
from time import perf_counter

import pytest

from app.bench.synthetic_lanes import lane_trace
from app.compare.lanes.tally import Figures, LaneTally, short_waste_words, waste_words
from app.playback.player import Playback, span_of
from engine import Trace, measure
from engine.trace import Ended, Step, time_of
from tests.engine.trace.hand_made import two_sends

SOON = inf


@pytest.fixture
def trace() -> Trace:
    return Trace(lane_trace("static", slots=4, requests=10))


def test_everything_is_told_once_and_in_order(trace: Trace) -> None:
    playback, known, due = Playback(), [], []
    playback.recorded.connect(known.extend)
    playback.arrived.connect(due.extend)
    playback.show(trace)
    playback.advance(SOON)
    assert known == due == trace.since(0)
    assert playback.caught_up
    assert all(view.ended is not None for view in playback.requests.values())


def test_a_moment_shows_what_had_happened_by_then(trace: Trace) -> None:
    playback, due = Playback(), []
    playback.arrived.connect(due.extend)
    playback.show(trace)
    moment = span_of(trace) / 2
    playback.seek(moment)
    playback.advance(SOON)
    assert playback.origin is not None
    assert due == [r for r in trace.records if time_of(r) <= moment + playback.origin]
    assert any(view.ended is None for view in playback.requests.values())


def test_going_back_begins_again_and_asking_for_the_same_moment_does_not(trace: Trace) -> None:
    playback, rewound = Playback(), []
    playback.show(trace)
    playback.advance(SOON)
    playback.rewound.connect(lambda: rewound.append(1))
    playback.seek(span_of(trace) / 3)
    assert rewound == [1]
    playback.advance(SOON)
    early = {r: len(v.tokens) for r, v in playback.requests.items()}
    playback.seek(span_of(trace) / 2)
    playback.advance(SOON)
    assert rewound == [1]
    assert sum(len(v.tokens) for v in playback.requests.values()) > sum(early.values())


def test_a_trace_that_grows_is_shown_as_it_does(trace: Trace) -> None:
    records, growing = trace.records, Trace()
    playback, due = Playback(), []
    playback.arrived.connect(due.extend)
    playback.show(growing)
    for record in records:
        growing.append(record)
        playback.advance(SOON)
    assert due == list(records)


def test_a_frame_tells_no_more_than_it_has_time_for(trace: Trace) -> None:
    playback, batches = Playback(), []
    playback.show(trace)
    playback.arrived.connect(batches.append)
    playback.advance(perf_counter())
    assert len(batches[0]) < 20
    while not playback.caught_up:
        playback.advance(perf_counter())
    assert sum(len(b) for b in batches) == len(trace.records)


@pytest.mark.parametrize("mode", ["static", "continuous", "chunked"])
def test_the_figures_beside_a_lane_are_those_of_the_table(mode: str) -> None:
    trace = Trace(lane_trace(mode, slots=4, requests=12))
    tally, metrics = LaneTally(), measure(trace)
    tally.feed(trace.records)
    figures = tally.figures()
    assert figures.rate == pytest.approx(metrics.output_throughput)
    assert figures.wasted == pytest.approx(metrics.wasted_row_share)
    assert figures.ttft == pytest.approx(metrics.ttft.p95)
    assert figures.finished == metrics.completed == sum(isinstance(r, Ended) for r in trace.records)
    assert figures.waste is None or sum(figures.waste.values()) == pytest.approx(metrics.kv.waste)


def test_idle_time_between_two_sends_counts_for_nothing_in_a_lanes_waste() -> None:
    tally, metrics = LaneTally(), measure(Trace(two_sends()))
    tally.feed(two_sends())
    assert metrics.kv is not None
    assert sum((tally.figures().waste or {}).values()) == pytest.approx(metrics.kv.waste) == pytest.approx(0.5625)


def test_a_lane_that_has_not_begun_has_no_figures() -> None:
    figures = LaneTally().figures()
    assert (figures.rate, figures.wasted, figures.ttft, figures.waste, figures.finished) == (None, None, None, None, 0)
    assert waste_words(figures) == "KV waste –"


def test_the_span_counts_from_the_first_submission(trace: Trace) -> None:
    steps = [r for r in trace.records if isinstance(r, Step)]
    assert span_of(trace) == pytest.approx(max(steps[-1].ended, trace.records[-1].time), rel=0.05)  # type: ignore[union-attr]
    assert span_of(Trace()) == 0


def test_waste_is_told_in_few_words_where_there_is_little_room() -> None:
    waste = {"reserved": 0.22, "internal": 0.39, "external": 0.004}
    assert waste_words(Figures(waste=waste)) == "KV waste 61 %: 22 reserved, 39 internal, 0.4 external"
    assert short_waste_words(Figures(waste=waste)) == "KV waste 61 %, mostly internal"
    assert short_waste_words(Figures(waste={"reserved": 0.2, "internal": 0.2})) == "KV waste 40 %"
    assert short_waste_words(Figures(waste={"reserved": 0.0})) == "KV waste 0 %"
    assert short_waste_words(Figures()) == "KV waste –"
