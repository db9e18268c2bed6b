"""What stands at a lane's right: of the tour's first race, whose first lane keeps no cache."""

from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from app.compare.lanes.figures import LaneFigures
from app.compare.lanes.tally import Figures, LaneTally, short_wasted_words, wasted_words
from app.stage.scene_file import RUNS, shipped_tour
from engine import measure
from engine.compare import load_race


@pytest.fixture(scope="module")
def told() -> list[tuple[Figures, int, int]]:
    """Of each lane: its figures, tokens computed for nothing, and computed."""
    race = load_race(shipped_tour() / RUNS / "01-cache.bsrace")[0]
    found = []
    for trace in (race.traces(i)[0] for i in range(2)):
        tally, metrics = LaneTally(), measure(trace)
        tally.feed(trace.records)
        found.append((tally.figures(), metrics.wasted_tokens, metrics.computed_tokens))
    return found


def test_without_a_cache_most_tokens_are_computed_again(told: list[tuple[Figures, int, int]]) -> None:
    (bare, wasted, computed), (cached, *_) = told
    assert bare.again == pytest.approx(wasted / computed) == pytest.approx(0.97, abs=0.01)
    assert wasted_words(bare) == "0 % of rows wasted, 97 % computed again"
    assert short_wasted_words(bare) == "97 % computed again"
    assert cached.again == 0
    assert wasted_words(cached) == "0 % of computed rows wasted"


def test_a_ratio_is_so_far_until_both_lanes_are_over(qtbot: QtBot, told: list[tuple[Figures, int, int]]) -> None:
    base, own = (figures for figures, *_ in told)
    panel = LaneFigures(1)
    qtbot.addWidget(panel)
    for total, words in ((2, "the first lane"), (3, "the first lane, so far")):
        panel.show_figures(own, total, base)
        assert f"1.9 ×, {words}, " in panel.accessibleDescription()
    stopped = replace(own, finished=own.finished - 1, cancelled=1)
    for first, second in ((base, stopped), (stopped, base)):
        panel.show_figures(second, 2, first)
        assert "×" not in panel.accessibleDescription(), "what was stopped wins and loses nothing"
    panel.show_figures(own, 2, None)
    assert "×" not in panel.accessibleDescription()
