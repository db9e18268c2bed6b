"""The measures against numbers worked by hand."""

import time
from dataclasses import replace

import numpy as np
import pytest

from engine.compare.comparison import table
from engine.config.specs import EngineConfig, InvalidInput
from engine.trace.measures.formulas import MEASURES, formulas, ratio_text
from engine.trace.measures.metrics import KvShares, Metrics, RequestMetrics, measure, request_metrics, timings
from engine.trace.measures.slo import Slo
from engine.trace.measures.spread import Spread
from engine.trace.records import Ended, FinishReason
from engine.trace.requests import State
from engine.trace.trace import Trace
from tests.engine.trace.hand_made import D, P, ended, header, static_batch, step, submitted


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
    assert "TTFT mean" in printed
    assert "1.75 s" in printed


def test_percentiles_are_those_of_numpy() -> None:
    values = [1.0, 2.0, 3.0, 10.0]
    assert Spread.of(values).p95 == pytest.approx(float(np.percentile(values, 95)))
    assert Spread.of([]) == Spread()


# Work that was for nothing, and the memory it took.


def test_seven_short_answers_beside_a_long_one_waste_what_the_textbook_says() -> None:
    found = measure(static_batch([5] * 8, [10] * 7 + [100]))
    assert (found.steps, found.row_steps, found.wasted_rows) == (100, 800, 630)
    assert found.wasted_row_share == 0.7875
    assert (found.completed, found.output_tokens) == (8, 170)
    assert found.idle_share == 0
    assert (found.padding_tokens, found.wasted_tokens) == (0, 630)
    assert found.computed_tokens == 8 * 5 + 99 * 8
    assert found.useful_share == 1 - 630 / (8 * 5 + 99 * 8)


@pytest.mark.parametrize("prompts", [[3, 3, 3], [9, 1, 4], [1, 2, 30, 5]])
def test_unequal_prompts_are_padded_to_the_longest(prompts: list[int]) -> None:
    found = measure(static_batch(prompts, [2] * len(prompts)))
    assert found.padding_tokens == sum(max(prompts) - p for p in prompts)
    assert found.padding_share == found.padding_tokens / (max(prompts) * len(prompts) + len(prompts))


def test_slots_without_a_row_are_idle() -> None:
    rows = [(0, 0, 2, P)], [(0, 2, 1, D), (1, 0, 2, P)]
    steps = [step(i, i, i + 1.0, r, dict.fromkeys(range(len(r)), 5)) for i, r in enumerate(rows)]
    asked = [submitted(0.0, i, 2) for i in range(2)]
    assert measure(Trace([header(EngineConfig(max_running=4)), *asked, *steps])).idle_share == 5 / 8
    assert measure(Trace([*asked, *steps])).idle_share == 1 / 4, "without a header, as many slots as were used"
    assert measure(Trace([header(EngineConfig(mode="recompute")), *asked, steps[0]])).idle_share == 0


def test_a_row_past_a_stop_is_wasted_and_one_that_computes_lost_tokens_again_is_not() -> None:
    lost = step(0, 0.0, 1.0, [(0, 0, 5, P), (1, 4, 1, D)], {0: 3}, {0: 4, 1: 1})
    found = measure(Trace([submitted(0.0, 0, 2), submitted(0.0, 1, 2), lost]))
    assert (found.wasted_rows, found.row_steps, found.wasted_tokens) == (1, 2, 5)


def test_kv_waste_is_a_mean_over_time() -> None:
    states = [
        (0.0, 1.0, (10, 30, 0, 0)),
        (1.0, 4.0, (20, 0, 10, 10)),
        (4.0, 5.0, (0, 0, 0, 0)),
        (7.0, 8.0, (1, 9, 0, 0)),
    ]
    steps = [step(i, begun, over, [(0, i, 1, D)], {0: 3}, kv=kv) for i, (begun, over, kv) in enumerate(states)]
    kv = measure(Trace([submitted(0.0, 0, 1), *steps])).kv
    # The first lasts 3 s until the second's end, the second 1 s; an empty pool and the last step count for nothing.
    assert kv == KvShares((0.25 * 3 + 0.5) / 4, 0.75 * 3 / 4, 0.25 / 4, 0.25 / 4)
    assert kv is not None
    assert kv.waste == pytest.approx(1 - kv.used)
    assert measure(Trace([submitted(0.0, 0, 1), steps[0]])).kv == KvShares(0.25, 0.75)
    assert measure(Trace([submitted(0.0, 0, 1)])).kv is None, "no KV was held"


# Latency: stalls, samples, limits.


def test_the_longest_stall_names_its_request(trace: Trace) -> None:
    found = measure(trace)
    assert (found.longest_stall, found.stalled_request) == (2.0, 0)
    assert (measure(Trace()).longest_stall, measure(Trace()).stalled_request) == (0.0, None)


def test_samples_of_one_prompt_are_one_request() -> None:
    both = [(4, 0, 2, P)], [(4, 2, 1, D), (4, 2, 1, D)], [(4, 3, 1, D), (4, 3, 1, D)]
    steps = [step(0, 0.0, 1.0, both[0], {0: 5})]
    steps += [
        step(1, 1.0, 3.0, both[1], {0: 6, 1: 6}, branches=(0, 1)),
        step(2, 3.0, 7.0, both[2], {1: 8}, branches=(0, 1)),
    ]
    trace = Trace([submitted(0.0, 4, 2, n=2), *steps, ended(3.0, 4), ended(7.0, 4, branch=1)])
    found, times = measure(trace), timings(trace)
    assert (found.requests, found.completed, found.output_tokens) == (1, 1, 4)
    assert (found.ttft.mean, found.e2e.mean) == (1.0, 7.0)
    assert found.tpot.mean == ((3 - 1) + (7 - 3)) / 2, "over both samples' later tokens"
    assert sorted(times.gap.tolist()) == [2.0, 4.0], "none between the samples"
    assert measure(Trace(trace.records[:-1])).completed == 0, "a sample is still under way"
    assert request_metrics(trace.requests[4]) == RequestMetrics(1.0, 3.0, 7.0, 2, 4)


def test_goodput_counts_the_requests_that_meet_every_limit() -> None:
    def answered(request: int, *times: float) -> list[object]:
        return [step(0, t - 0.5, t, [(request, 0, 1, D)], {0: 3}) for t in times] + [ended(times[-1], request)]

    trace = Trace([submitted(0.0, i, 2) for i in range(4)])
    # TTFT, TPOT, E2E: 1, 1, 3 · 1, 2, 5 · 4, none, 4 · 2, 0.5 (gaps 0.1 and 0.9), 3
    for records in (answered(0, 1, 2, 3), answered(1, 1, 3, 5), answered(2, 4), answered(3, 2, 2.1, 3)):
        trace.extend(records)  # type: ignore[arg-type]

    def met(**limits: float) -> int | None:
        return measure(trace, Slo(**limits)).met

    assert measure(trace).goodput is None
    assert met() is None
    assert measure(trace, Slo(ttft=2)).goodput == 3 / 5
    assert [met(ttft=0.5), met(ttft=1), met(ttft=2), met(ttft=4)] == [0, 2, 3, 4]
    assert [met(tpot=0.4), met(tpot=0.5), met(tpot=1)] == [1, 2, 3], "one token has no TPOT to break"
    assert [met(e2e=3), met(e2e=4)] == [2, 3]
    assert [met(itl=0.89), met(itl=0.9)] == [1, 2]
    assert met(ttft=1, tpot=1, e2e=3) == 1
    cut_short = [r for r in trace.records if not isinstance(r, Ended)]
    assert measure(Trace(cut_short), Slo(ttft=4)).met == 0, "only what was completed"


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_no_time_is_refused(limit: float) -> None:
    with pytest.raises(InvalidInput, match="slo_tpot="):
        Slo(tpot=limit)


def test_an_slo_reads_as_a_sentence() -> None:
    assert Slo(ttft=0.5, e2e=12).text() == "TTFT ≤ 500.0 ms, E2E latency ≤ 12.00 s"
    assert Slo().text() == ""


def test_one_full_batch_has_the_courses_average_latency() -> None:
    found = measure(static_batch([4] * 8, [20] * 8))
    assert found.average_latency == found.duration / 20
    assert found.output_throughput == 8 * 20 / found.duration


def test_samples_fill_a_batch_as_requests_do() -> None:
    rows = [(0, 0, 4, P), (0, 0, 4, P)]
    trace = Trace([header(EngineConfig(max_running=8)), submitted(0.0, 0, 4, n=2)])
    trace.append(step(0, 0.0, 1.0, rows, {0: 7, 1: 8}, branches=(0, 1)))
    assert measure(trace).average_latency == 1.0, "two samples of one token each, in a second"


def test_gaps_are_held_against_the_target_that_the_run_began_with() -> None:
    rows = [(0, 0, 4, P)]
    trace = Trace([header(EngineConfig("chunked", target_itl=1.0)), submitted(0.0, 0, 4)])
    trace.append(step(0, 0.0, 2.0, rows, {0: 7}))
    assert measure(trace).gaps_within is None, "there are none"
    for i, end in enumerate((3.0, 3.5, 5.0, 5.5), 1):
        trace.append(step(i, end - 0.1, end, [(0, 4 + i, 1, D)], {0: 7}))
    assert measure(trace).gaps_within == 3 / 4


# The dictionary of measures.


ABSENT = "kv.", "accept", "draft", "activated", "expert", "ttfo", "thought", "gaps"  # no cache, drafts, mixture, …


def test_every_measure_is_read_from_the_metrics_and_has_its_formula(trace: Trace) -> None:
    found = measure(trace, Slo(ttft=2), price=0.72)
    for key, m in MEASURES.items():
        assert (m.read(found) is None) == key.startswith(ABSENT), key
        assert m.formula.split(" of ", 1)[-1] in formulas()
        assert m.better in ("higher", "lower", "")
        assert (m.text(m.read(found)) == "–") == key.startswith(ABSENT)
    assert MEASURES["goodput"].read(measure(trace)) is None
    assert MEASURES["cost"].read(measure(trace)) is None
    assert found.cost == pytest.approx(0.72 / 3600 / found.output_throughput * 1e6)
    assert found.to_json()["cost"] == found.cost
    assert MEASURES["cost"].text(0.0412) == "0.041 a million"
    assert measure(Trace([]), price=0.72).cost is None
    assert MEASURES["kv.waste"].read(replace(found, kv=KvShares(0.25, 0.5, 0.25))) == 0.75
    assert MEASURES["ttft.p95"].read(found) == found.ttft.p95
    assert MEASURES["output_throughput"].text(1.0) == "1.00 tok/s"
    assert MEASURES["kv.waste"].text(0.125) == "12.5 %"
    assert MEASURES["itl.p99"].text(0.0123) == "12.3 ms"


def test_a_ratio_has_three_digits() -> None:
    texts = [ratio_text(r) for r in (0, 0.0281, 0.5, 1.0, 2.384, 11.31, 756.5)]
    assert texts == ["×0", "×0.0281", "×0.500", "×1.00", "×2.38", "×11.3", "×756"]


def test_two_hundred_thousand_row_steps_are_measured_at_once() -> None:
    asked = [submitted(0.0, i, 8) for i in range(16)]
    steps = [
        step(i, i, i + 1.0, [(r, 8 + i, 1, D) for r in range(16)], dict.fromkeys(range(16), 5)) for i in range(100)
    ]
    trace = Trace([*asked, *(s for s in steps for _ in range(125))])
    begun = time.process_time()
    found: Metrics = measure(trace)
    assert (found.row_steps, found.output_tokens) == (200_000, 200_000)
    assert time.process_time() - begun < 5, "a fraction of a second on a quick machine"


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
    assert (first.tokens.tolist(), first.token_times.tolist()) == ([11, 12, 13], [2.0, 3.0, 5.0])
    assert (first.scheduled, first.ended, first.reason) == (1.0, 5.0, FinishReason.LENGTH)
    assert (first.ttft, first.first_token) == (1.0, 2.0)
    assert first.tokens_per_second == 2 / 3
    assert second.text == "21 held back"
    assert second.preemptions == 1
    assert (third.scheduled, third.text, third.state) == (None, "", State.WAITING)


def test_what_a_preempted_request_had_reused_is_forgotten() -> None:
    first = replace(step(0, 0.0, 1.0, [(0, 16, 4, P)], {0: 11}), reused=np.array([16], np.int32))
    trace = Trace([submitted(0.0, 0, 20), first])
    assert (trace.requests[0].computed, trace.requests[0].reused) == (20, 16)
    trace.append(step(1, 1.0, 2.0, [(0, 0, 21, P)], {0: 12}, preempted=(0,)))
    assert (trace.requests[0].computed, trace.requests[0].reused) == (21, 0)


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
