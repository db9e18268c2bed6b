"""The row of prompt compression in the table of techniques."""

import pytest

from engine.bench.techniques import compression


def test_half_of_a_prompt_takes_less_time_to_the_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "PROMPTS", 2)
    (row,) = compression.measure(3, 1)
    assert 0 < row.with_it < row.without
    assert "KL ≥" in row.note
