"""What it costs to tell of attention is measured beside steps that tell nothing."""

from pathlib import Path

import pytest

from engine.bench.techniques import attention
from engine.bench.techniques.run import TECHNIQUES


def test_a_step_that_is_watched_is_measured_beside_one_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "PLAIN", attention.PLAIN.with_(max_tokens=6))
    monkeypatch.setattr(attention, "ROWS", ((3, 2),))
    assert TECHNIQUES[Path(attention.__file__).stem] == attention.__name__
    (found,) = attention.measure(1, 1)
    assert found.what == "ms a decode step of 3 rows, 2 watched"
    assert 0 < found.without < found.with_it < 1000
    assert found.at_most
