"""What a grammar costs is measured over rows that all follow it."""

from pathlib import Path

import pytest

from engine.bench.techniques import constrained
from engine.bench.techniques.run import TECHNIQUES


def test_a_step_with_a_schema_is_measured_beside_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constrained, "ROWS", 6)
    monkeypatch.setattr(constrained, "TOKENS", 24)
    assert TECHNIQUES[Path(constrained.__file__).stem] == constrained.__name__
    found = list(constrained.measure(1, 1))
    assert [one.what for one in found] == [f"ms a decode step of 6 rows, {way}" for way in ("greedy", "sampled")]
    for one in found:
        assert 0 < one.without < 1000
        assert 0.5 < one.ratio < 10
        assert one.at_most
