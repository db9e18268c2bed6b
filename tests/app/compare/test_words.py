"""The window's own words for the engine's measures, lanes and orders: in English, they are the engine's."""

import pytest

from app.compare.words import ORDERS, SENTENCES, TITLES, measure_title, sentence_of, title_of
from app.words import sentence, unlike_words
from engine import EngineConfig, Lane
from engine.compare import RACE_ORDERS, lane_sentence, lane_title
from engine.config import MODES
from engine.library import Making, differences
from engine.trace import MEASURES


def test_measures_and_orders_are_called_as_the_engine_calls_them() -> None:
    for each in MEASURES.values():
        assert measure_title(each) == each.name
    assert {order: (order, f"{sentence(words)}.") for order, words in RACE_ORDERS.items()} == ORDERS


@pytest.mark.parametrize("mode", MODES)
def test_a_lane_is_called_as_the_engine_calls_it(mode: str) -> None:
    plain, named = (Lane(EngineConfig(mode=mode, max_running=1), name=name) for name in ("", "Mine"))
    assert (title_of(plain), sentence_of(plain)) == (lane_title(plain), lane_sentence(plain))
    assert title_of(named) == "Mine"
    assert mode in TITLES
    assert mode in SENTENCES


def test_whatever_runs_may_not_have_in_common_has_a_word() -> None:
    one, other = Making("a", "b", "c", "d"), Making("e", "f", "g", "h")
    assert unlike_words(differences((one, other))) == "prompts and model and quantization and machine"
