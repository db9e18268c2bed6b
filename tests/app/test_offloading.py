"""Where a person chooses what becomes of old prefixes, and where it is told."""

import pytest
from pytestqt.qtbot import QtBot

from app.bench.synthetic import header
from app.play.setup.run import batching_facts
from app.ui.forms.config_form import ConfigForm
from engine import EngineConfig, InvalidInput
from engine.compare import lane_name, lane_text, parse_lane


def test_a_lane_names_it_and_reads_it_back() -> None:
    text = "continuous:8:prefix:offload=yes:swap=4096"
    lane = parse_lane(text)
    assert lane.config == EngineConfig(max_running=8, prefix_caching=True, offload_prefixes=True, swap_memory=4096)
    assert parse_lane(lane_text(lane)) == lane
    assert lane_name(lane) == "continuous · 8 · prefixes to the host · 4,096 B to swap to + prefix"
    with pytest.raises(InvalidInput, match="switch prefix_caching on, or this off"):
        parse_lane("continuous:offload=yes")
    with pytest.raises(InvalidInput, match="means nothing to static"):
        parse_lane("static:8:offload=yes")


def test_the_form_offers_it_beside_prefix_caching_and_remembers_it(qtbot: QtBot) -> None:
    form = ConfigForm("test", pool=True)
    qtbot.addWidget(form)
    form.show()
    row = form._form.rows["offload_prefixes"]
    assert not row.isVisible()
    chosen = EngineConfig(prefix_caching=True, offload_prefixes=True, swap_memory=1 << 20)
    form.set_config(chosen)
    assert row.isVisible()
    assert form.config(chosen) == chosen
    form["prefix_caching"].set(False)
    without = form.config(chosen)
    assert (without.offload_prefixes, without.swap_memory) == (False, None)
    assert not row.isVisible()
    form.set_config(without)  # as the session does, when the engine has it
    form["prefix_caching"].set(True)
    assert form.config(without).offload_prefixes, "what was chosen before"
    form["mode"].set("disaggregated")
    assert not row.isVisible()
    assert not form.config(without).offload_prefixes


def test_a_run_tells_of_old_prefixes_where_any_are_kept(qtbot: QtBot) -> None:
    for caching in (False, True):
        facts = {name: said for name, _, said in batching_facts(header(4, 64, prefix_caching=caching))}
        assert facts.get("offload_prefixes") == ("are forgotten" if caching else None)
