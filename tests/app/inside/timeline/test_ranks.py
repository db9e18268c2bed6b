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
