"""A workload under way: when requests are sent, what the client's limit lets through, and every way to an end."""

import os
import signal
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest

from engine import (
    Engine,
    EngineConfig,
    EngineProcess,
    InvalidInput,
    ModelSpec,
    Run,
    SamplingParams,
    Stream,
    Submission,
    Trace,
    Workload,
    measure,
)
from engine.core.stream import Ticket
from engine.trace import Ended, FinishReason, Submitted
from engine.workloads import Arrival
from tests.waiting import until

FOX = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]
SHORT = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
LONG = SHORT.with_(max_tokens=900)
SMALL = EngineConfig(max_running=16, token_budget=512)


def workload(times: Sequence[float], params: SamplingParams = SHORT, limit: int | None = None) -> Workload:
    return Workload("test", tuple(Arrival(t, FOX, params, str(i)) for i, t in enumerate(times)), limit)


def open_at_once(trace: Trace) -> int:
    """The most requests that were open at any moment, by the order of the records."""
    most, count = 0, 0
    for record in trace.records:
        count += isinstance(record, Submitted)
        count -= isinstance(record, Ended)
        most = max(most, count)
    return most


# The client's limit.


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_never_more_requests_are_open_than_the_client_allows(demo: Engine, limit: int) -> None:
    params = [SHORT.with_(max_tokens=2 + 5 * (i % 4)) for i in range(16)]
    arrivals = tuple(Arrival(0.01 * (i // 5), FOX, p) for i, p in enumerate(params))
    run = demo.run(Workload("limited", arrivals, limit), SMALL)
    trace = run.result(timeout=60)
    assert (run.finished, run.total) == (16, 16)
    assert measure(trace).completed == 16
    assert open_at_once(trace) <= limit
    if limit < 16:
        assert open_at_once(trace) == limit
    assert [view.params for view in trace.requests.values()] == params


def test_a_request_that_was_held_back_counts_from_when_it_is_sent(demo: Engine) -> None:
    trace = demo.run(workload([0.0] * 4, limit=1), SMALL).result(timeout=30)
    views = list(trace.requests.values())
    for before, view in pairwise(views):
        assert before.ended is not None
        assert view.submitted >= before.ended
        assert view.ttft is not None
        assert view.ttft < 0.5


def test_a_limit_that_is_not_reached_changes_no_time(demo: Engine) -> None:
    trace = demo.run(workload([0.0, 0.1, 0.25], limit=3), SMALL).result(timeout=30)
    times = [view.submitted for view in trace.requests.values()]
    assert [t - times[0] for t in times] == pytest.approx([0, 0.1, 0.25], abs=1e-6)


def test_arrivals_that_come_while_the_limit_is_reached_are_sent_later_in_their_order(demo: Engine) -> None:
    long = SHORT.with_(max_tokens=150)
    arrivals = (Arrival(0.0, FOX, long, "0"), *(Arrival(0.001 * i, FOX, SHORT, str(i)) for i in range(1, 5)))
    trace = demo.run(Workload("held", arrivals, 2), SMALL).result(timeout=30)
    submitted = [r for r in trace.records if isinstance(r, Submitted)]
    assert [r.label for r in submitted] == ["0", "1", "2", "3", "4"]
    assert [r.time for r in submitted] == sorted(r.time for r in submitted)
    assert open_at_once(trace) == 2


def test_a_sample_of_a_request_is_no_request(demo: Engine) -> None:
    run = demo.run(workload([0.0, 0.0, 0.0], SHORT.with_(n=3, temperature=1.0), limit=1), SMALL)
    trace = run.result(timeout=30)
    assert (run.finished, run.total) == (3, 3)
    assert sum(isinstance(r, Ended) for r in trace.records) == 9
    still_open = 0
    for record in trace.records:
        if isinstance(record, Submitted):
            assert still_open == 0
            still_open = 3
        still_open -= isinstance(record, Ended)


# What is said of those to come.


class Told:
    """Passes submissions on and remembers how many there were and whether more were said to follow."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.calls: list[tuple[int, bool]] = []

    def __call__(self, submissions: Sequence[Submission], more: bool = False) -> list[Stream]:
        self.calls.append((len(submissions), more))
        return self._engine.submit_many(submissions, more)


@pytest.mark.parametrize(
    ("times", "limit", "calls"),
    [
        ([0.0] * 3, None, [(3, False)]),
        ([0.0, 0.0, 0.1, 0.2], None, [(2, True), (1, True), (1, False)]),
        ([0.0, 0.0, 0.3], 1, [(1, False), (1, False), (1, False)]),
        ([0.0, 0.3, 0.3], 2, [(1, True), (2, False)]),
        ([0.0, 0.0, 0.3], 2, [(2, False), (1, False)]),
    ],
)
def test_a_run_says_whether_others_follow_that_do_not_wait_for_these(
    large_demo: Engine, times: list[float], limit: int | None, calls: list[tuple[int, bool]]
) -> None:
    told = Told(large_demo)
    run = Run(workload(times, limit=limit), large_demo.begin(SMALL), told, large_demo.cancel)
    run.result(timeout=30)
    assert told.calls == calls


def test_a_static_batch_waits_until_it_is_full_while_others_follow(demo: Engine) -> None:
    trace = demo.run(workload([0.0, 0.05, 0.1, 0.15]), EngineConfig(mode="static", max_running=2)).result(timeout=30)
    started = [view.scheduled for view in trace.requests.values()]
    assert started[0] == started[1]
    assert started[2] == started[3]


@pytest.mark.parametrize("mode", ["static", "dynamic", "sequential"])
def test_a_limit_below_the_batch_size_leaves_no_batch_waiting(demo: Engine, mode: str) -> None:
    run = demo.run(workload([0.0] * 7, limit=2), EngineConfig(mode=mode, max_running=4))
    assert measure(run.result(timeout=30)).completed == 7


# Ends.


def test_a_run_that_is_cancelled_half_way_ends_its_own_requests_alone(large_demo: Engine) -> None:
    run = large_demo.run(workload([0.0] * 20, LONG, limit=3), SMALL)
    while len(run.trace.requests) < 3:
        time.sleep(0.005)
    other = large_demo.submit(FOX, SHORT.with_(max_tokens=60))
    run.cancel()
    trace = run.result(timeout=60)
    assert (run.finished, run.total) == (3, 3)
    reasons = [view.reason for view in trace.requests.values() if view.request != other.request]
    assert reasons == [FinishReason.CANCELLED] * 3
    assert other.result(timeout=60).finish_reason is FinishReason.LENGTH
    run.cancel()


@pytest.mark.parametrize("after", [0.0, 0.002, 0.02, 0.1])
def test_a_run_can_be_cancelled_at_any_moment(large_demo: Engine, after: float) -> None:
    run = large_demo.run(workload([0.01 * i for i in range(10)], limit=2), SMALL)
    time.sleep(after)
    run.cancel()
    run.result(timeout=60)
    assert run.finished == run.total <= 10


def test_requests_of_others_do_not_count(large_demo: Engine) -> None:
    run = large_demo.run(workload([0.0, 0.05, 60.0]), SMALL)
    for stream in [large_demo.submit(FOX, SHORT) for _ in range(3)]:
        stream.result(timeout=60)
    until(lambda: run.finished == 2)
    run.cancel()
    assert len(run.result(timeout=60).requests) == 5
    assert (run.finished, run.total) == (2, 2)


def test_a_run_ends_when_the_engine_begins_another_and_sends_it_nothing(large_demo: Engine) -> None:
    run = large_demo.run(workload([0.0, 0.8, 60.0]), SMALL)
    while run.finished < 1:
        time.sleep(0.005)
    trace = large_demo.begin(SMALL)
    assert run.wait(60)
    with pytest.raises(InvalidInput, match="began another run: 2 of 3 requests were never sent; start the run again"):
        run.result(timeout=0)
    time.sleep(0.5)
    assert trace.requests == {}
    assert run.total == 1


def test_a_run_ends_with_an_engine_that_is_closed() -> None:
    with Engine(ModelSpec("demo-draft"), SMALL, threads=1) as engine:
        run = engine.run(workload([0.0, 60.0]))
        while run.finished < 1:
            time.sleep(0.005)
    assert run.wait(60)
    with pytest.raises(InvalidInput, match="1 of 2 requests were never sent"):
        run.result(timeout=0)


def test_requests_that_an_engine_forgets_do_not_keep_a_run_from_ending(large_demo: Engine) -> None:
    """An engine that died with a request on its way writes no end for it, but its trace is complete."""
    trace, sent = Trace([large_demo.trace.header]), list[Submission]()

    def submit_many(submissions: Sequence[Submission], more: bool = False) -> list[Stream]:
        sent.extend(submissions)
        return [Stream(Ticket(i, 0.0, 1), trace, large_demo.cancel) for i in range(len(submissions))]

    run = Run(workload([0.0, 0.0]), trace, submit_many, lambda ids: None)
    until(lambda: len(sent) == 2)
    assert not run.wait(0.1)
    trace.complete = True
    with pytest.raises(InvalidInput, match="the engine ended while 2 of 2 requests ran; start the run again"):
        run.result(timeout=60)
    assert (run.finished, run.total) == (0, 2)


@pytest.mark.parametrize("limit", [None, 2])
def test_a_run_ends_with_a_process_that_is_killed(limit: int | None) -> None:
    with EngineProcess(ModelSpec("demo-draft"), SMALL, threads=1) as engine:
        run = engine.run(workload([0.0, 0.0, 0.0, 60.0], LONG, limit))
        while len(run.trace.requests) < 2:
            time.sleep(0.005)
        os.kill(engine.pid, signal.SIGKILL)
        assert run.wait(60)
        assert run.error is not None
        assert run.finished == run.total
        with pytest.raises((RuntimeError, InvalidInput)):
            run.result(timeout=0)


def test_progress_only_rises(large_demo: Engine) -> None:
    run = large_demo.run(workload([0.005 * i for i in range(30)], limit=4), SMALL)
    seen = []
    while not run.done:
        seen.append(run.finished)
        time.sleep(0.002)
    assert seen == sorted(seen)
    assert run.result(timeout=0) is run.trace
