"""The index as of a moment against an index that was fed only with what had happened by then."""

import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields

import numpy as np
import pytest

from engine import Engine, EngineConfig, SamplingParams, Submission, Trace
from engine.trace import RequestIndex, RequestView, State, TallyIndex
from engine.trace.records import Ended, FinishReason, Header, Record
from tests.engine.trace.hand_made import D, P, ended, step, submitted

PROMPTS = [
    "Once upon a time a fox",
    "The dog ran to the park with",
    "A",
    "It was a rainy day and everyone in the house",
]


def told_at(record: Record) -> float:
    return 0.0 if isinstance(record, Header) else getattr(record, "ended", None) or getattr(record, "time", 0.0)


def fed(records: Iterable[Record]) -> RequestIndex:
    index = RequestIndex()
    for record in records:
        index.feed(record)
    return index


def assert_same(then: RequestView, expected: RequestView) -> None:
    assert then == expected
    for name in [f.name for f in fields(RequestView)] + [
        n for n, v in vars(RequestView).items() if type(v) is property
    ]:
        if name not in ("parts", "prompt_ids"):
            assert getattr(then, name) == getattr(expected, name), name
    assert [sample.text for sample in then.samples] == [sample.text for sample in expected.samples]
    assert all("".join(sample.parts) == sample.text for sample in then.samples)


def assert_tally(trace: Trace) -> None:
    """After every record, and later for that moment, the tally counts what the requests' views are."""
    views, tallies, told = RequestIndex(), TallyIndex(), {}
    for record, moment in zip(trace.records, trace.records.times):
        views.feed(record)
        tallies.feed([record])
        samples = [sample for view in views.requests.values() for sample in view.samples]
        now = Counter(sample.reason or sample.state for sample in samples)
        tally = told[moment] = tallies.at()
        assert tally.requests == len(views.requests)
        assert tally.waiting == now[State.WAITING] + now[State.PREEMPTED]
        assert tally.running == now[State.PREFILL] + now[State.DECODE]
        assert tally.finished == now[FinishReason.STOP] + now[FinishReason.LENGTH]
        assert (tally.cancelled, tally.failed) == (now[FinishReason.CANCELLED], now[FinishReason.ERROR])
        assert tally.over + tally.waiting + tally.running == len(samples)
    assert [tallies.at(moment) for moment in told] == list(told.values())


def assert_past(trace: Trace, moments: int = 120, seed: int = 1) -> set[State]:
    """At random moments, and just at and before a record, the past is what its records tell. The states met."""
    assert_tally(trace)
    rng, records = random.Random(seed), trace.records
    index, times = fed(records), [told_at(r) for r in records]
    edges = rng.sample(times, min(len(times), moments // 2))
    met = set()
    for moment in [
        -1.0,
        1e9,
        *edges,
        *(float(np.nextafter(t, 0)) for t in edges),
        *(rng.uniform(0, times[-1]) for _ in edges),
    ]:
        expected = fed(r for r, t in zip(records, times) if t <= moment).requests
        past = index.at(moment)
        assert len(past) == len(expected)
        assert sorted(past) == sorted(expected) == [r for r in range(len(trace.requests)) if r in past]
        for request, view in expected.items():
            assert_same(past[request], view)
            met.add(view.state)
        for request, view in index.requests.items():
            assert (view.at(moment) is None) == (request not in expected) == (past.get(request) is None)
    return met


def play(engine: Engine, config: EngineConfig, params: Iterable[SamplingParams], cancelled: int | None = None) -> Trace:
    trace = engine.begin(config)
    streams = engine.submit_many([Submission(PROMPTS[i % 4], p) for i, p in enumerate(params)])
    if cancelled is not None:
        while not trace.requests[streams[cancelled].request].computed:
            time.sleep(0.001)
        engine.cancel([streams[cancelled].request])
    for stream in streams:
        stream.result(timeout=60)
    return trace


GREEDY = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)


@pytest.mark.parametrize("mode", ["sequential", "static", "continuous-padded", "continuous", "chunked"])
def test_the_past_of_a_run_is_what_its_records_told_by_then(large_demo: Engine, mode: str) -> None:
    trace = play(large_demo, EngineConfig(mode=mode, max_running=4, token_budget=16), [GREEDY] * 7, cancelled=2)
    assert {State.WAITING, State.DECODE, State.FINISHED} <= assert_past(trace)
    assert any(v.reason is FinishReason.CANCELLED for v in trace.requests.values())


def test_the_past_of_requests_that_were_preempted(demo: Engine) -> None:
    block = demo.trace.header.model.kv_token_bytes * 16
    trace = play(demo, EngineConfig(mode="continuous", max_running=6, kv_memory=9 * block), [GREEDY] * 6)
    assert sum(v.preemptions for v in trace.requests.values()) > 0
    assert assert_past(trace, moments=300) >= {State.PREEMPTED, State.DECODE, State.FINISHED}


def test_the_past_of_samples_that_share_a_prompt_and_of_prompts_that_share_a_prefix(demo: Engine) -> None:
    several = SamplingParams(max_tokens=24, temperature=1.0, n=3, seed=5, stop=("the",))
    trace = play(
        demo, EngineConfig(mode="continuous", max_running=8, prefix_caching=True), [several] * 4 + [GREEDY] * 5
    )
    assert any(s.reused for v in trace.requests.values() for s in v.samples)
    assert_past(trace)


def test_the_past_of_a_batch_that_is_delivered_whole(large_demo: Engine) -> None:
    params = [SamplingParams(max_tokens=n, temperature=0, ignore_eos=True) for n in (4, 30, 12, 9, 20)]
    config = EngineConfig(mode="static", max_running=3, delivery="batch")
    assert_past(play(large_demo, config, params))
    assert_past(play(large_demo, config, params, cancelled=1))


def test_text_that_was_held_back_comes_with_the_end() -> None:
    steps = [
        step(i, float(i), i + 1.0, [(0, 4 * bool(i), 1 if i else 4, D if i else P)], {0: 11 + i}) for i in range(3)
    ]
    late = {"token": np.array([9], np.int32), "logprob": np.zeros(1, np.float32), "text_end": np.array([2], np.int32)}
    over = Ended(3.5, 0, FinishReason.STOP, "later", **late)
    for end in (over, Ended(3.5, 0, FinishReason.STOP, "tail"), ended(3.5, 0)):
        trace = Trace([submitted(0.0, 0, 4), *steps, end])
        assert_past(trace)
        before = trace.requests[0].at(3.2)
        assert before is not None
        assert (before.text, before.samples[0].text_ends.tolist()) == ("11 12 13 ", [3, 6, 9])


def test_long_texts_end_where_they_should() -> None:
    word, index = "x" * 30_000, fed([submitted(0.0, 0, 4)])
    sample = index.requests[0].samples[0]
    for i in range(4):
        sample.add(i, 0.0, float(i), word)
    sample.end(Ended(9.0, 0, FinishReason.STOP, "tail"))
    assert sample.text_ends.tolist() == [30_000, 60_000, 90_000, 120_004]
    assert (sample.text[:120_000], sample.text[120_000:]) == (4 * word, "tail")
    assert [len(sample.at(t).text) for t in (0.5, 1.5, 2.5, 3.5, 9.0)] == [30_000, 60_000, 90_000, 120_000, 120_004]


def test_a_past_view_stays_as_it_is_and_one_that_was_over_costs_nothing() -> None:
    index = fed([submitted(0.0, 0, 4), step(0, 0.0, 1.0, [(0, 0, 4, P)], {0: 11})])
    view = index.requests[0]
    then = view.at(1.0)
    assert then is not None
    assert then is not view
    index.feed(step(1, 1.0, 2.0, [(0, 4, 1, D)], {0: 12}))
    index.feed(ended(2.0, 0))
    assert (then.tokens.tolist(), then.text, then.state, then.ended) == ([11], "11 ", State.DECODE, None)
    assert then.at(0.5).state is State.WAITING  # type: ignore[union-attr]
    assert view.at(2.0) is view
    assert view.at(-0.1) is None


def test_requests_that_come_in_out_of_order_are_listed_by_the_time_they_were_sent() -> None:
    index = fed([submitted(1.0, 0, 4), submitted(3.0, 1, 4), submitted(2.0, 2, 4)])
    assert [list(index.at(t)) for t in (0.5, 1.0, 2.5, 3.0)] == [[], [0], [0, 2], [0, 2, 1]]
    with pytest.raises(KeyError):
        index.at(2.5)[1]
