"""The precision of K and V where a person chooses it, and where it is told."""

import json
from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from app.__main__ import main
from app.quality.subject import examine
from app.quality.words import way_words
from app.ui.forms.config_form import ConfigForm
from app.words import kv_words, run_words
from engine import Engine, EngineConfig, InvalidInput, ModelSpec
from engine.compare import lane_name, lane_text, parse_lane
from engine.quality import QualityRow


def test_a_lane_names_it_and_modes_without_blocks_refuse_it() -> None:
    lane = parse_lane("continuous:kv=int8")
    assert lane.config == EngineConfig(kv_dtype="int8")
    assert lane_text(lane) == "continuous:kv=int8"
    assert lane_name(lane) == "continuous · 64 · KV int8"
    with pytest.raises(InvalidInput, match="means nothing to static; it is for continuous, chunked"):
        parse_lane("static:8:kv=int8")
    with pytest.raises(InvalidInput, match="kv_dtype='int3': must be one of auto, int8, fp8"):
        parse_lane("continuous:kv=int3")


def test_the_form_offers_it_where_there_are_blocks(qtbot: QtBot) -> None:
    form = ConfigForm("test", pool=True)
    qtbot.addWidget(form)
    form.set_config(EngineConfig(kv_dtype="fp8"))
    assert form["kv_dtype"].counts("chunked")
    assert not form["kv_dtype"].counts("static")
    assert form.config(EngineConfig()).kv_dtype == "fp8"
    form["kv_dtype"].set("int8")
    assert form.config(EngineConfig()).kv_dtype == "int8"
    form["mode"].set("static")
    assert form.config(EngineConfig()).kv_dtype == "auto"


def test_words_name_it_where_it_is_not_the_models() -> None:
    assert kv_words("", 12288) == kv_words("auto", 12288)
    assert kv_words("int8", 3168) == "KV int8, 3.09 KB a token"
    with Engine(ModelSpec("demo"), EngineConfig(kv_dtype="int8", kv_memory=1 << 20), threads=1) as engine:
        header = engine.trace.header
    assert run_words(header).endswith("continuous, paged, KV int8")
    assert run_words(replace(header, model=engine.card)).endswith("continuous, paged")
    assert way_words(QualityRow(ModelSpec(), "none", "float32", cache="int8")) == "KV int8"


def test_a_quality_check_offers_the_original_over_such_caches() -> None:
    ways = {way.key: way for way in examine(ModelSpec("demo", device="cpu")).ways}
    assert ways["kv-int8"].cache == "int8"
    assert ways["kv-int8"].spec == ModelSpec("demo", device="cpu")


def test_fit_tells_what_such_a_cache_holds(capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for kept in ("auto", "int8"):
        assert main(["fit", "demo", "--device", "cpu", "--kv-dtype", kept, "--json"]) == 0
        found[kept] = json.loads(capsys.readouterr().out)
    plain, coded = (found[kept]["fits"][0]["kv_token"] for kept in ("auto", "int8"))
    assert coded * 4 * 32 == plain * 33
    assert main(["fit", "demo", "--device", "cpu", "--kv-dtype", "int8"]) == 0
    assert "KV of one request, int8:" in capsys.readouterr().out
    assert main(["fit", "demo", "--kv-dtype", "int3"]) == 2
    assert "kv_dtype='int3'" in capsys.readouterr().err
