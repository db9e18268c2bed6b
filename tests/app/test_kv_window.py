"""Where a person chooses a cache that forgets, and where it is told."""

import pytest
from pytestqt.qtbot import QtBot

from app.bench.synthetic import header
from app.play.setup.run import batching_facts
from app.ui.forms.config_form import ConfigForm
from engine import EngineConfig, InvalidInput
from engine.compare import lane_name, lane_text, parse_lane


def test_a_lane_names_it_and_reads_it_back() -> None:
    lane = parse_lane("continuous:8:window=64:sinks=0")
    assert lane.config == EngineConfig(max_running=8, kv_window=64, kv_sinks=0)
    assert parse_lane(lane_text(lane)) == lane
    assert lane_name(lane) == "continuous · 8 · KV window 64 · 0 sinks"
    with pytest.raises(InvalidInput, match="means nothing to static"):
        parse_lane("static:8:window=64")


def test_the_form_asks_for_sinks_where_there_is_a_window_and_remembers_both(qtbot: QtBot) -> None:
    form = ConfigForm("test", pool=True)
    qtbot.addWidget(form)
    form.show()
    row = form._form.rows["kv_sinks"]
    assert not row.isVisible()
    chosen = EngineConfig(kv_window=128, kv_sinks=16)
    form.set_config(chosen)
    assert row.isVisible()
    assert form.config(chosen) == chosen
    form["mode"].set("static")
    assert not row.isVisible()
    assert form.config(chosen) == EngineConfig("static")
    form["mode"].set("chunked")
    assert form.config(chosen) == EngineConfig("chunked", kv_window=128, kv_sinks=16)
    form["kv_window"].set(None)
    assert not row.isVisible()


def test_a_run_tells_of_it_where_it_forgets(qtbot: QtBot) -> None:
    for window, said in ((None, None), (64, "64 tokens")):
        facts = {name: words for name, _, words in batching_facts(header(4, 64, kv_window=window))}
        assert facts.get("kv_window") == said
        assert ("kv_sinks" in facts) is (window is not None)
