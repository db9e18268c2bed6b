"""The lanes of a split model's ranks tell of each pixel what the records tell of the steps in it."""

from dataclasses import replace

import numpy as np
import pytest

from app.bench.synthetic import synthetic_trace
from app.inside.timeline.ranks import RankTimes
from app.inside.timeline.words import rank_words
from engine.trace import Step


def step(number: int, started: float, forward: float, *of_ranks: tuple[float, float, float]) -> Step:
    columns = [np.array(column, np.float32) for column in zip(*of_ranks)] or [np.zeros(0, np.float32)] * 3
    told = dict(zip(("rank_computing", "rank_communicating", "rank_waiting"), columns))
    sent, seconds = np.full(len(of_ranks), 1000, np.int64), {"plan": 0.1, "forward": forward}
    records = synthetic_trace(streams=1, tokens_per_second=50, seconds=0.2)
    plain = next(record for record in records if isinstance(record, Step))
    when = {"step": number, "started": started, "ended": started + forward, "seconds": seconds}
    return replace(plain, rank_bytes=sent, **when, **told)


def test_shares_are_those_of_the_records() -> None:
    ranks = RankTimes()
    ranks.feed(step(0, 10.0, 1.0, (0.6, 0.1, 0.3), (0.9, 0.1, 0.0)), 10.0)
    ranks.feed(step(1, 12.0, 2.0), 10.0)  # nobody told
    ranks.feed(step(2, 15.0, 1.0, (0.5, 0.5, 0.0), (0.25, 0.5, 0.25)), 10.0)
    whole = ranks.shares(np.array([[0.1, 1.1], [2.1, 4.1], [5.1, 6.1], [7.0, 8.0]]))
    assert whole[0].T.tolist() == [pytest.approx(x) for x in ([0.6, 0.1, 0.3], [0, 0, 0], [0.5, 0.5, 0], [0, 0, 0])]
    assert whole[1, :, 0].tolist() == pytest.approx([0.9, 0.1, 0.0])
    halves = ranks.shares(np.array([[0.1, 0.6], [0.6, 1.1]]))
    assert halves[0, :, 0].tolist() == pytest.approx(halves[0, :, 1].tolist()), "when in the step, nobody knows"
    assert ranks.seconds(2, 1) == pytest.approx((0.25, 0.5, 0.25))
    assert "waiting 250 ms" in rank_words(ranks, 2, 1)
    ranks.clear()
    assert ranks.ranks == 0


def test_lanes_of_a_pipeline_tell_when_each_micro_batch_was_computed() -> None:
    ranks = RankTimes()
    told = step(0, 10.0, 1.0, (0.6, 0.0, 0.4), (0.5, 0.1, 0.4))
    begun, ended = np.array([0.1, 0.4, 0.45, 0.75], np.float32), np.array([0.4, 0.7, 0.7, 1.0], np.float32)
    ranks.feed(replace(told, micro_begun=begun, micro_ended=ended), 10.0)
    ranks.feed(step(1, 12.0, 1.0), 10.0)
    assert ranks.micro.most == 2
    first, last = ranks.shares(np.array([[0.1, 0.4], [0.4, 0.7], [0.75, 1.0]]))
    assert first[:2].tolist() == [pytest.approx([1, 0, 0], abs=1e-6), pytest.approx([0, 1, 0], abs=1e-6)]
    assert first[-1].tolist() == pytest.approx([0, 0, 1], abs=1e-6), "a bubble, while the last stage computes"
    assert last[-1, 0] == pytest.approx(0.9, abs=1e-6), "a bubble, until something is handed on"
    whole = ranks.shares(np.array([[0.0, 0.1], [1.05, 1.09], [1.2, 2.0]])).sum(axis=1)
    assert whole[0].tolist() == pytest.approx([0, 1, 0], abs=1e-6), "from its first micro-batch on, as long as was told"
    assert last[1].tolist() == pytest.approx([0, 0, 1], abs=1e-6)
    assert "micro-batch 2 of 2, 300 ms" in rank_words(ranks, 0, 0, 0.5)
    assert "bubble" in rank_words(ranks, 0, 1, 0.2)
    assert "waiting" in rank_words(ranks, 1, 1, 2.5), "nobody told of this step"
