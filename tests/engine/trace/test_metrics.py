"""The measures against numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from engine.config import SamplingParams
from engine.trace.metrics import Spread, measure, request_metrics, table
from engine.trace.records import Ended, FinishReason, Kind, Step, Submitted
from engine.trace.trace import State, Trace


def submitted(time: float, request: int, prompt: int) -> Submitted:
    return Submitted(time, request, "a fox", np.arange(prompt, dtype=np.int32), SamplingParams())


def step(
    number: int,
    started: float,
    ended: float,
    rows: list[tuple[int, int, int, Kind]],
    tokens: dict[int, int] | None = None,
    wasted: dict[int, int] | None = None,
    preempted: tuple[int, ...] = (),
) -> Step:
    """Rows of (request, first, count, kind); `tokens` by row. A token's text is its number and a space."""
    tokens, wasted = tokens or {}, wasted or {}
    texts = [f"{tokens[i]} " if i in tokens else "" for i in range(len(rows))]
    columns = list(zip(*rows)) if rows else [(), (), (), ()]

    def ints(values: object) -> np.ndarray:
        return np.array(values, np.int32)

    return Step(
        step=number, started=started, ended=ended, request=ints(columns[0]), branch=ints([0] * len(rows)),
        slot=ints(range(len(rows))), first=ints(columns[1]), count=ints(columns[2]), kind=ints(columns[3]),
        wasted=ints([wasted.get(i, 0) for i in range(len(rows))]), token_row=ints(list(tokens)),
        token=ints(list(tokens.values())), logprob=np.zeros(len(tokens), np.float32), text="".join(texts),
        text_end=ints(np.cumsum([len(t) for t in texts])), running=len(rows), waiting=0, free_blocks=9,
        seconds={"forward": 0.8 * (ended - started), "sample": 0.2 * (ended - started)}, preempted=ints(preempted),
    )  # fmt: skip


P, D = Kind.PREFILL, Kind.DECODE


@pytest.fixture
def trace() -> Trace:
    """Request 0: tokens at 2, 3 and 5 s. Request 1: preempted once, a token at 4 s, cancelled. Request 2: nothing."""
    return Trace([
        submitted(1.0, 0, 4),
        submitted(1.5, 1, 2),
        step(0, 1.0, 2.0, [(0, 0, 4, P)], {0: 11}),
        step(1, 2.0, 3.0, [(0, 4, 1, D)], {0: 12}),
        submitted(3.0, 2, 7),
        step(2, 3.0, 4.0, [(1, 0, 2, P)], {0: 21}),
        step(3, 4.0, 5.0, [(0, 5, 1, D), (1, 2, 1, D)], {0: 13}, {1: 1}, preempted=(1,)),
        Ended(5.0, 0, FinishReason.LENGTH),
        Ended(5.5, 1, FinishReason.CANCELLED, "held back"),
    ])  # fmt: skip


def test_a_requests_times_are_as_defined(trace: Trace) -> None:
    first, second, third = (request_metrics(view) for view in trace.requests.values())
    assert (first.ttft, first.tpot, first.e2e) == (1.0, 1.5, 4.0)
    assert (first.prompt_tokens, first.output_tokens) == (4, 3)
    assert (second.ttft, second.tpot, second.e2e) == (2.5, None, 2.5)
    assert (third.ttft, third.tpot, third.e2e, third.output_tokens) == (None, None, None, 0)


def test_a_runs_measures_are_as_defined(trace: Trace) -> None:
    found = measure(trace)
    assert (found.requests, found.completed) == (3, 1)
    assert found.duration == 4.0, "from the first submission to the last token"
    assert (found.prompt_tokens, found.output_tokens) == (13, 4)
    assert found.request_throughput == 0.25
    assert found.output_throughput == 1.0
    assert found.total_throughput == 17 / 4
    assert found.ttft.mean == 1.75
    assert found.ttft.p50 == 1.75
    assert found.tpot == Spread(1.5, 1.5, 1.5, 1.5)
    assert found.itl.mean == 1.5, "gaps of 1 and 2 s"
    assert found.e2e.mean == 3.25
    assert (found.steps, found.mean_rows) == (4, 1.25)
    assert (found.preemptions, found.wasted_tokens) == (1, 1)
    assert found.outside_forward == pytest.approx(0.2)
    assert found.to_json()["ttft"]["mean"] == 1.75


def test_tokens_of_one_step_are_one_emission() -> None:
    both = step(1, 1.0, 2.0, [(0, 2, 2, D)], {0: 5})
    twice = Trace([submitted(0.0, 0, 2), step(0, 0.0, 1.0, [(0, 0, 2, P)], {0: 4}), both, both])
    assert measure(twice).itl == Spread(1.0, 1.0, 1.0, 1.0)


def test_an_empty_trace_measures_nothing_and_prints(trace: Trace) -> None:
    empty = measure(Trace())
    assert (empty.requests, empty.duration, empty.output_throughput, empty.mean_rows) == (0, 0, 0, 0)
    assert "0 of 0 completed" in table(empty)
    printed = table(measure(trace))
    assert "1 of 3 completed in 4.00 s" in printed
    assert "1,750.0 ms" in printed


def test_percentiles_are_those_of_numpy() -> None:
    values = [1.0, 2.0, 3.0, 10.0]
    assert Spread.of(values).p95 == pytest.approx(float(np.percentile(values, 95)))
    assert Spread.of([]) == Spread()


# The index that views read.


def test_the_index_follows_each_request(trace: Trace) -> None:
    growing = Trace()
    states = []
    for record in trace.records:
        growing.append(record)
        view = growing.requests.get(1)
        states.append(view.state if view else None)
    assert states == [
        None, State.WAITING, State.WAITING, State.WAITING, State.WAITING, State.DECODE, State.DECODE, State.DECODE,
        State.FINISHED,
    ]  # fmt: skip
    first, second, third = growing.requests.values()
    assert first.text == "11 12 13 "
    assert (first.tokens, first.token_times) == ([11, 12, 13], [2.0, 3.0, 5.0])
    assert (first.scheduled, first.ended, first.reason) == (1.0, 5.0, FinishReason.LENGTH)
    assert (first.ttft, first.first_token, first.last_token) == (1.0, 2.0, 5.0)
    assert first.tokens_per_second == 2 / 3
    assert second.text == "21 held back"
    assert second.preemptions == 1
    assert (third.scheduled, third.text, third.state) == (None, "", State.WAITING)


def test_a_reader_takes_up_where_it_left_and_a_listener_hears_each_record_once() -> None:
    trace, heard = Trace(), []
    trace.listen(heard.append)
    records = [submitted(0.0, i, 1) for i in range(3)]
    trace.extend(records[:2])
    position = len(trace.since(0))
    trace.append(records[2])
    assert trace.since(position) == [records[2]]
    assert heard == records


def test_a_trace_without_a_header_says_so() -> None:
    with pytest.raises(ValueError, match="no header yet"):
        _ = Trace().header
