"""What drafts bought, against numbers worked by hand."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from engine.trace.measures.draft_speedup import draft_speedup
from engine.trace.records import Step
from tests.engine.trace.hand_made import D, P, step


def decode(started: float, rows: int, drafted: int, kept: int, seconds: float, drafting: float = 0.0) -> Step:
    """Each row computes its token and `drafted` more, of which `kept` were kept."""
    emitted = dict.fromkeys(range(rows), 7)
    made = step(0, started, started + seconds, [(i, 9, 1 + drafted, D) for i in range(rows)], emitted)
    columns = {"drafted": np.full(rows, drafted, np.int32), "accepted": np.full(rows, kept, np.int32)}
    tokens = np.zeros(rows * (1 + kept), np.int32)
    spent = {**made.seconds, "draft": drafting} if drafting else made.seconds
    return replace(made, **(columns if drafted else {}), token=tokens, seconds=spent)


def run(rows: int) -> Iterator[Step]:
    """Steps of 1 s and 0.1 s a token; drafting takes 0.2 s."""
    yield step(0, 0.0, 50.0, [(0, 0, 4, P)], {0: 11})  # says nothing of steps without prompts
    for drafted, kept in ((4, 3), (4, 1), (2, 2)):
        yield decode(0.0, rows, drafted, kept, 1 + 0.1 * rows * (1 + drafted), 0.2)


@pytest.mark.parametrize("rows", [1, 3])
def test_the_speed_up_is_the_time_that_the_tokens_would_have_taken_over_the_time_they_took(rows: int) -> None:
    steps = [*run(rows), *(decode(0.0, rows, 0, 0, seconds) for seconds in (1 + 0.1 * rows, 40.0, 1 + 0.1 * rows))]
    without = (4 + 2 + 3) * (1 + 0.1 * rows)  # one slow step of three is not what a step costs
    took = sum(1.2 + 0.1 * rows * (1 + drafted) for drafted in (4, 4, 2))
    assert draft_speedup(steps) == pytest.approx(without / took)


def test_a_run_whose_steps_are_all_of_one_size_cannot_tell() -> None:
    assert draft_speedup([decode(0.0, 1, 4, 2, 1.5)] * 9) is None
    assert draft_speedup([decode(0.0, 1, 0, 0, 1.0), decode(0.0, 2, 0, 0, 1.1)]) is None, "nothing was drafted"
