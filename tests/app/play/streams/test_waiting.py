"""How many are before a request that waits, beside who the engine's scheduler takes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.play.streams.waiting import waiting_words
from engine import Engine, EngineConfig, ModelSpec, load_workload
from engine.trace import RequestView, State, Trace


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(ModelSpec("demo")) as engine:
        yield engine


def shown(trace: Trace, moment: float) -> list[RequestView]:
    views = (view.at(moment) for view in trace.requests.values())
    return [view for view in views if view is not None]


@pytest.mark.parametrize("admission", ["fcfs", "sjf", "priority"])
@pytest.mark.parametrize("mode", ["continuous", "static"])
def test_who_has_fewest_before_it_is_the_next_to_run(engine: Engine, mode: str, admission: str) -> None:
    workload = load_workload("mixed-lengths", count=12)
    lengths = [max(1, arrival.params.max_tokens // 8) for arrival in workload.arrivals]
    arrivals = (
        replace(arrival, params=arrival.params.with_(priority=i % 3, max_tokens=length))
        for i, (arrival, length) in enumerate(zip(workload.arrivals, lengths, strict=True))
    )
    workload = replace(workload, arrivals=tuple(arrivals))
    trace = engine.run(workload, EngineConfig(mode, 2, admission=admission)).result(60)
    started = dict.fromkeys(int(request) for step in trace.steps for request in step.request)
    order = {request: place for place, request in enumerate(started)}
    told = 0
    for step in list(trace.steps)[::5]:
        views = shown(trace, step.ended)
        words = waiting_words(views, trace.header, trace.requests)
        waiting = sorted((view.request for view in views if view.state is State.WAITING), key=order.__getitem__)
        assert set(words) == set(waiting)
        expected = ["the next in the queue", *(f"in the queue, {n} before it" for n in range(1, len(waiting)))]
        assert [words[request] for request in waiting] == expected[: len(waiting)]
        told += len(waiting)
    assert told > 10


def test_who_made_way_is_before_all_that_never_ran(engine: Engine) -> None:
    workload = load_workload("mixed-lengths", count=24)
    trace = engine.run(workload, EngineConfig(max_running=8, kv_memory=512 * 6144, admission="sjf")).result(60)
    moments = [step.ended for step in trace.steps if len(step.preempted)]
    assert moments
    found = 0
    for moment in moments:
        views = shown(trace, moment)
        away = sum(view.state in (State.PREEMPTED, State.SWAPPED) for view in views)
        words = waiting_words(views, trace.header, trace.requests)
        if away and words:
            assert min(words.values(), key=len) == f"in the queue, {away} before it"
            found += 1
    assert found


def test_prefixes_are_not_told_beforehand(engine: Engine) -> None:
    workload = load_workload("mixed-lengths", count=3)
    trace = engine.run(workload, EngineConfig(max_running=1, prefix_caching=True, admission="lpm")).result(60)
    views = shown(trace, next(iter(trace.steps)).ended)
    assert any(view.state is State.WAITING for view in views)
    assert waiting_words(views, trace.header, trace.requests) == {}
    assert waiting_words(views, None, trace.requests) == {}
