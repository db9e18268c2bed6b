"""Lanes as text: what is written reads back, and what is wrong is named."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import InvalidInput
from engine.compare.lane import (
    BATCHED_MODES,
    JOINING_MODES,
    MODE_SENTENCES,
    MODE_TITLES,
    Lane,
    lane_sentence,
    lane_title,
)
from engine.compare.lane_grammar import lane_name, lane_names, lane_text, parse_lane, parse_lanes
from engine.config import SHARED_BUDGET_MODES
from engine.config.parallel import Parallel
from engine.config.specs import ADMISSIONS, COLOCATED_MODES, MODES, PAGED_MODES, SOLITARY_MODES, EngineConfig, ModelSpec

SPLITS = [
    Parallel(),
    Parallel(2),
    Parallel(8),
    Parallel(2, sequence=True),
    Parallel(2, experts=True),
    Parallel(pipeline=2),
    Parallel(pipeline=3, micro_batches=5),
]


@st.composite
def lanes(draw: st.DrawFn) -> Lane:
    """Any lane whose settings all mean something to its mode."""
    mode = draw(st.sampled_from(list(MODES)))
    values: dict[str, object] = {"mode": mode, "block_size": draw(st.sampled_from([4, 16, 64]))}
    colocated = mode in COLOCATED_MODES
    values["depth"] = draw(st.sampled_from([None, 0, 1] if mode != "disaggregated" else [None, 0]))
    values["seed"] = draw(st.integers(0, 1 << 40))
    running = draw(st.integers(1, 5000)) if mode not in SOLITARY_MODES else EngineConfig().max_running
    values["max_running"], values["token_budget"] = running, max(2048, running)
    if mode in JOINING_MODES:
        values["join_every"] = draw(st.integers(1, 9))
    if mode in SHARED_BUDGET_MODES:
        values["token_budget"] = running + draw(st.integers(0, 5000))
    if mode == "dynamic":
        values["longest_wait"] = draw(st.floats(0, 3600) | st.integers(0, 3600))
    if mode in BATCHED_MODES:
        values["delivery"] = draw(st.sampled_from(["stream", "batch"]))
    if mode in PAGED_MODES:
        values["prefix_caching"] = draw(st.booleans())
    orders = [one for one in ADMISSIONS if values.get("prefix_caching") or one != "lpm"]
    values["admission"] = draw(st.sampled_from(orders))
    if mode in PAGED_MODES:
        values["cuda_graphs"] = draw(st.booleans())
        values["mixed_graphs"] = draw(st.booleans())
        values["speculation"] = draw(st.sampled_from([None, "ngram", "draft"])) if not values["depth"] else None
        values["speculated"] = draw(st.sampled_from(["auto", 1, 7]))
        if values["speculation"] == "draft":
            drafts = None, ModelSpec("demo-draft"), ModelSpec("./a:b,c"), ModelSpec("org/model", revision="e")
            values["draft"] = draw(st.sampled_from(drafts))
        values["preemption"] = draw(st.sampled_from(["recompute", "swap", "auto"] if colocated else ["recompute"]))
        if values["preemption"] != "recompute":
            values["swap_memory"] = draw(st.none() | st.integers(1, 1 << 40))
    texts = st.text(st.characters(codec="utf-8") | st.sampled_from(":,%= "), min_size=1).filter(str.strip)
    spec = ModelSpec(
        draw(texts), dtype=draw(st.sampled_from(["auto", "float32"])), trust_remote_code=draw(st.booleans()),
        device=draw(st.sampled_from(["auto", "cpu", "cuda", "cuda:1"])), revision=draw(st.none() | texts),
        parallel=draw(st.sampled_from(SPLITS)) if colocated else Parallel(),
    )  # fmt: skip
    if spec.parallel.ranks == 1:
        spec = replace(spec, kv_heads=draw(st.sampled_from(["auto", "all", 1, 8])))
    beams = draw(st.integers(1, 64)) if colocated else 1
    return Lane(EngineConfig(**values), spec, draw(st.just("") | texts), beams)  # type: ignore[arg-type]


@given(lanes())
def test_what_is_written_reads_back(lane: Lane) -> None:
    assert parse_lane(lane_text(lane)) == lane


@given(st.lists(lanes(), min_size=1, max_size=4))
def test_lanes_with_commas_between_them_read_back(several: list[Lane]) -> None:
    assert parse_lanes(",".join(lane_text(lane) for lane in several)) == tuple(several)


@pytest.mark.parametrize(
    ("text", "name", "changes"),
    [
        ("static:8", "static · 8", {"mode": "static", "max_running": 8}),
        ("chunked:9:budget=99", "chunked · 9 · budget 99", {"mode": "chunked", "max_running": 9, "token_budget": 99}),
        ("continuous:prefix", "continuous · 64 + prefix", {"prefix_caching": True}),
        ("dynamic:8:wait=0.5", "dynamic · 8 · waits 0.5 s", {"mode": "dynamic", "max_running": 8, "longest_wait": 0.5}),
        ("continuous:join=4", "continuous · 64 · joins every 4", {"join_every": 4}),
        ("static:deliver=batch", "static · 64 · delivers whole", {"mode": "static", "delivery": "batch"}),
        ("static:8:admission=sjf", "static · 8 · sjf", {"mode": "static", "max_running": 8, "admission": "sjf"}),
        ("chunked:prefix:admission=lpm", "chunked · 64 · lpm + prefix",
         {"mode": "chunked", "prefix_caching": True, "admission": "lpm"}),
        ("recompute", "recompute", {"mode": "recompute"}),
        ("continuous:4096", "continuous · 4096", {"max_running": 4096, "token_budget": 4096}),
    ],
)  # fmt: skip
def test_a_lane_is_read_and_labelled(text: str, name: str, changes: dict[str, object]) -> None:
    lane = parse_lane(text)
    assert lane == Lane(EngineConfig(**changes))  # type: ignore[arg-type]
    assert lane_name(lane) == name
    assert lane_text(lane) == text


def test_a_lane_names_its_model() -> None:
    lane = parse_lane("continuous:model=/models/llama:quantization=none:device=cuda:1")
    assert lane.spec == ModelSpec("/models/llama", device="cuda:1")
    assert lane_name(lane) == "continuous · 64 · llama"
    given = ModelSpec("/models/qwen", dtype="float32")
    assert parse_lane("static:8", given).spec == given
    assert parse_lane("static:8:model=demo", given).spec == ModelSpec("demo", dtype="float32")
    for text, held, said in (("8", 8, "8 KV heads"), ("all", "all", "multi-head")):
        repeated = parse_lane(f"continuous:kv_heads={text}")
        assert repeated.spec == ModelSpec(kv_heads=held)
        assert lane_name(repeated) == f"continuous · 64 · {said}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no such mode", "continuous"]),
        ("sideways:8", ["'sideways'", "no such mode", "static"]),
        ("static:0", ["max_running=0", "at least 1"]),
        ("static:8:16", ["'16'", "right after the mode"]),
        ("static:-3", ["'-3'", "not a part"]),
        ("static:²", ["not a part"]),
        ("recompute:8", ["'8'", "one request at a time"]),
        ("static:prefix", ["no blocks to share", "continuous, chunked"]),
        ("static:8:join=4", ["'join=4'", "means nothing to static"]),
        ("chunked:budgit=4", ["'budgit=4'", "budget"]),
        ("chunked:budget=few", ["'budget=few'", "whole number of tokens"]),
        ("chunked:64:budget=8", ["token_budget=8", "at least max_running"]),
        ("dynamic:8:wait=nan", ["longest_wait=nan", "seconds"]),
        ("dynamic:wait=1:wait=2", ["'wait=2'", "twice"]),
        ("static:8:deliver=never", ["delivery='never'", "stream, batch"]),
        ("continuous:quantization=nf9", ["quantization='nf9'"]),
        ("continuous:trust=perhaps", ["yes or no"]),
        ("static:admission=lifo", ["admission='lifo'", "fcfs, sjf, lpm"]),
        ("continuous:admission=lpm", ["admission='lpm'", "switch prefix_caching on"]),
        ("continuous:model=", ["name a model"]),
    ],
)  # fmt: skip
def test_a_wrong_lane_is_named_with_its_part_and_the_remedy(text: str, words: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_lane(text)
    for word in [f"lane {text!r}: ", *words]:
        assert word in str(caught.value)


def test_twins_are_told_apart() -> None:
    assert lane_names(parse_lanes("static:8,continuous,static:8")) == (
        "static · 8 (1)", "continuous · 64", "static · 8 (2)",
    )  # fmt: skip


def test_every_mode_has_its_heading() -> None:
    assert set(MODE_TITLES) == set(MODE_SENTENCES) == set(MODES)
    lane = parse_lane("static:12")
    assert (lane_title(lane), lane_sentence(lane)) == ("Static batch of 12", "finished rows wait for the longest")
    assert lane_title(parse_lane("continuous")) == "Continuous, paged"


def test_a_larger_batch_takes_its_budget_along() -> None:
    assert parse_lane("static:8").with_batch(4000).config == parse_lane("static:4000").config


@pytest.mark.parametrize(
    ("text", "url", "model", "name"),
    [
        ("server=http://127.0.0.1:8000:model=demo", "http://127.0.0.1:8000", "demo", ""),
        ("server=localhost:11434:model=llama3:8b:name=Ollama", "http://localhost:11434", "llama3:8b", "Ollama"),
        ("server=https://a.example/v1/", "https://a.example", "", ""),
        ("server=http://h:1/llm/v1:model=a%2Cb", "http://h:1/llm", "a,b", ""),
    ],
)
def test_a_lane_may_be_a_server(text: str, url: str, model: str, name: str) -> None:
    lane = parse_lane(text)
    assert lane.server is not None
    assert (lane.server.url, lane.server.model, lane.name) == (url, model, name)
    assert parse_lane(lane_text(lane)) == lane


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("server=", "give its address"),
        ("server=ftp://a", "give its address"),
        ("server=http://u:p@host", "key=NAME"),
        ("server=http://h:model=a:model=b", "given twice"),
        ("server=http://h:beams=2", "a server's lane is"),
        ("server=http://h:key=sk-1234", "environment variable"),
    ],
)
def test_a_server_that_is_none_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(why)) as error:
        parse_lane(text)
    assert ":p@" not in str(error.value).split(": ", 2)[-1]
