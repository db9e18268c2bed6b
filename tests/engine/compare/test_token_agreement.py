"""Agreement of lanes: the same tokens, a near tie, a difference; on traces made by hand and on the demo model."""

from dataclasses import replace

import pytest

from engine import Engine, EngineConfig, SamplingParams
from engine.compare.token_agreement import NEAR_TIE, Agreement, Parting, Verdict, agreement, agreements
from engine.trace import FinishReason
from engine.trace.trace import Trace
from engine.workloads import demo_workload
from tests.engine.trace.hand_made import D, P, ended, step, submitted


def played(
    *tokens: list[int],
    logprob: float = -0.1,
    alternatives: tuple[tuple[int, int, float], ...] = (),
    reason: FinishReason = FinishReason.LENGTH,
    first: int = 0,
) -> Trace:
    """Requests one after another, each token a step. Every token has the same log-probability and alternatives."""
    trace, time = Trace([submitted(0.0, first + i, 3) for i in range(len(tokens))]), 0.0
    for i, each in enumerate(tokens):
        for at, token in enumerate(each):
            row = (first + i, 2 + at, 1, D) if at else (first + i, 0, 3, P)
            trace.append(
                step(int(time), time, time + 1, [row], {0: token}, logprobs=(logprob,), alternatives=alternatives)
            )
            time += 1
        trace.append(ended(time, first + i, reason))
    return trace


def test_lanes_that_gave_the_same_tokens_agree_whatever_the_numbers_of_their_requests() -> None:
    found = agreement(played([5, 6], [7]), played([5, 6], [7], first=40))
    assert found == Agreement(2)
    assert found.verdict is Verdict.SAME
    assert found.text() == "same tokens in every request"


def test_a_difference_tells_where_and_what() -> None:
    found = agreement(played([5, 6, 7], [8, 9]), played([5, 6, 7], [8, 1], logprob=-0.5))
    (parting,) = found.partings
    assert parting == Parting(1, 0, 1, (9, 1), ("9 ", "1 "), pytest.approx(0.4))
    assert (parting.verdict, found.verdict) == (Verdict.DIFFERS, Verdict.DIFFERS)
    assert (
        found.text() == "1 of 2 differ; first difference: prompt 2, token 2 is 1 '1 ', not 9 '9 ', ~4.0e-01 nats apart"
    )


def test_maxima_that_are_nearly_the_same_are_a_near_tie() -> None:
    found = agreement(played([5, 6]), played([5, 7], logprob=-0.1 - 0.9 * NEAR_TIE))
    assert found.verdict is Verdict.NEAR_TIE
    assert not found.partings[0].exact
    assert "first near-tie: prompt 1, token 2" in found.text()
    assert agreement(played([5, 6]), played([5, 7], logprob=-0.1 - 1.1 * NEAR_TIE)).verdict is Verdict.DIFFERS


def test_alternatives_tell_the_true_gap() -> None:
    first = played([5, 6], alternatives=((0, 6, -0.1), (0, 7, -0.3)))
    (parting,) = agreement(first, played([5, 7])).partings
    assert (parting.margin, parting.exact, parting.verdict) == (pytest.approx(0.2), True, Verdict.DIFFERS)
    (parting,) = agreement(first, played([5, 8])).partings
    assert (parting.margin, parting.exact) == (0.0, False), "8 is none of the first lane's alternatives"


def test_one_difference_outweighs_any_number_of_near_ties() -> None:
    tie, far = Parting(0, 0, 0, (1, 2), ("", ""), 1e-6), Parting(1, 0, 0, (1, 2), ("", ""), 0.5)
    assert Agreement(2, (tie,)).verdict is Verdict.NEAR_TIE
    assert Agreement(2, (tie, far)).verdict is Verdict.DIFFERS
    assert "first difference: prompt 2" in Agreement(2, (tie, far)).text()


def test_an_answer_that_ends_early_differs_unless_it_was_cut_short() -> None:
    whole, short = played([5, 6, 7]), played([5, 6])
    (parting,) = agreement(whole, short).partings
    assert (parting.position, parting.tokens, parting.margin, parting.verdict) == (2, (7, None), None, Verdict.DIFFERS)
    assert "token 3 is its end, not 7" in agreement(whole, short).text()
    for reason in (FinishReason.CANCELLED, FinishReason.ERROR):
        assert agreement(whole, played([5, 6], reason=reason)).verdict is Verdict.SAME
        assert agreement(whole, played([5, 9], reason=reason)).verdict is Verdict.NEAR_TIE


def test_a_sampled_choice_has_no_margin() -> None:
    def hot(trace: Trace) -> Trace:
        params = SamplingParams(temperature=0.8)
        return Trace([replace(r, params=params) if i == 0 else r for i, r in enumerate(trace.records)])  # type: ignore[type-var]

    assert agreement(hot(played([5])), hot(played([5]))).verdict is Verdict.SAME
    (parting,) = agreement(hot(played([5])), hot(played([6]))).partings
    assert (parting.margin, parting.verdict) == (None, Verdict.DIFFERS)


def test_every_lane_is_compared_with_the_first_that_was_played() -> None:
    a, b, c = played([5]), played([5]), played([6])
    assert agreements([None, a, None, b, c]) == (None, None, None, Agreement(1), agreement(a, c))
    assert agreements([None]) == (None,)
    assert agreement(Trace(), Trace()).text() == "no request to compare"


@pytest.mark.parametrize("params", [SamplingParams(max_tokens=12, temperature=0), SamplingParams(max_tokens=12, n=2)])
def test_the_demo_model_says_the_same_in_lanes_of_any_width(demo: Engine, params: SamplingParams) -> None:
    workload = demo_workload(6, params)
    traces = [demo.run(workload, EngineConfig(max_running=n)).result(timeout=60) for n in (2, 8)]
    found = agreement(*traces)
    assert found.compared == 6 * params.n
    assert found.verdict is Verdict.SAME
    assert agreement(traces[0], demo.run(demo_workload(6, params.with_(seed=9, temperature=1.5))).result()).partings
