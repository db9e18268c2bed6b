"""The row of beam search in the table of techniques."""

import pytest

from engine.bench.techniques import beams


def test_four_beams_hold_little_more_than_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beams, "REQUESTS", 2)
    monkeypatch.setattr(beams, "GREEDY", beams.GREEDY.with_(max_tokens=16))
    (row,) = beams.measure(1, 1)
    assert row.reached
    assert 1 < row.ratio == row.with_it / row.without
