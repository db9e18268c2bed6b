"""The rows of layers that keep a state in the table of techniques."""

import pytest

from engine.bench.techniques import states
from engine.bench.techniques.run import TECHNIQUES


def test_states_are_measured_beside_a_model_that_attends_in_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in {"ROWS": 2, "PROMPT": 20, "NEW": 6, "LAYERS": 4, "HIDDEN": 64, "HEADS": 2}.items():
        monkeypatch.setattr(states, name, few)
    assert TECHNIQUES["states"] == states.__name__
    held, step, prompts, *halves = states.measure(1, 1)
    assert len(halves) == 3
    assert held.ratio == held.with_it / held.without > 3
    assert [each.what for each in (step, prompts)] == ["ms a decode step", "ms of their prompts"]
    for each in (step, prompts):
        assert each.at_most
        assert each.without > 0 < each.with_it
