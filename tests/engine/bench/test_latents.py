"""The rows of latent attention in the table of techniques."""

import pytest

from engine.bench.techniques import latents
from engine.bench.techniques.run import TECHNIQUES


def test_latents_are_measured_beside_keys_and_values_of_all_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in {
        "ROWS": 2,
        "PROMPT": 20,
        "NEW": 6,
        "LAYERS": 1,
        "HIDDEN": 64,
        "HEADS": 2,
        "MEMORY": 64 << 20,
    }.items():
        monkeypatch.setattr(latents, name, few)
    assert TECHNIQUES["latents"] == latents.__name__
    held, step, *halves = latents.measure(1, 1)
    assert len(halves) == 2
    assert held.ratio == held.with_it / held.without > 1
    assert step.what == "ms a decode step"
    assert step.at_most
    assert step.without > 0 < step.with_it
