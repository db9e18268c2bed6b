"""How many tokens are drafted: by what steps cost, and by what was kept."""

import pytest

from engine.config.specs import AUTO_SPECULATED
from engine.scheduler.speculation import FIRST, LEAST, MOST, StepCosts, likely


def measured(base: float, token: float) -> StepCosts:
    costs = StepCosts()
    for i in range(40):
        tokens = 1 + i % 5
        costs.learn(tokens, base + token * tokens)
    return costs


def test_what_a_token_costs_is_read_off_the_steps() -> None:
    assert StepCosts().share(1) == FIRST
    same = StepCosts()
    for _ in range(9):
        same.learn(4, 0.01)
    assert same.share(4) == FIRST, "steps of one size say nothing of a token more"
    assert measured(9e-3, 1e-3).share(1) == pytest.approx(0.1)
    assert measured(9e-3, 1e-3).share(9) == pytest.approx(0.5)
    assert measured(1e-2, 0.0).share(1) == LEAST  # of which memory is the bound
    assert measured(0.0, 1e-3).share(4) == MOST  # of which computing is


def test_as_many_are_drafted_as_are_likely_enough_to_be_kept() -> None:
    assert likely(1.0, 0.5) == AUTO_SPECULATED
    assert likely(0.99, 0.05) == AUTO_SPECULATED
    assert likely(0.8, 0.5) == 3  # 0.8 ** 3 = 0.51
    assert likely(0.5, 0.5) == 1
    assert likely(0.4, 0.5) == likely(0.0, 0.5) == 0
