"""A cache that forgets: tokens and weights are transformers' under a mask that hides the same, however they came."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, Submission, load_trace, save_trace
from engine.trace import BlockEvent, Trace, attended
from tests.engine.forgetful_reference import BLOCK, SINKS, WINDOW, assert_said, reference, seen
from tests.engine.tiny_models import random_prompts

LENGTHS = (26, 3, 17)  # more than sinks and window together, less than the sinks, between
NEW_TOKENS = 40
GREEDY = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)
# Grouped queries, sliding windows, in some layers only, sinks of its own, learned places.
MODELS = ("llama", "mistral", "gemma3", "gpt-oss", "gpt2")
WAYS: tuple[dict[str, Any], ...] = (
    {"mode": "continuous"},
    {"mode": "chunked", "token_budget": 16, "depth": 1},
    {"mode": "continuous", "prefix_caching": True, "cuda_graphs": False},
    {"mode": "disaggregated"},
    {"mode": "chunked", "preemption": "swap", "prefix_caching": True, "token_budget": 16},
)


def config(engine: Engine, blocks: int = 100, **values: Any) -> EngineConfig:
    memory = blocks * BLOCK * engine.card.kv_token_bytes
    known: dict[str, Any] = {"max_running": 6, "block_size": BLOCK, "kv_memory": memory, "kv_sinks": SINKS}
    return EngineConfig(**known | {"kv_window": WINDOW} | values)


def said(engine: Engine, asked: Sequence[Submission]) -> list[list[list[int]]]:
    return [[list(c.token_ids) for c in stream.results(60)] for stream in engine.submit_many(asked)]


@pytest.mark.parametrize("name", MODELS)
def test_it_says_what_transformers_says_that_sees_as_much(name: str, tiny_folder: Callable[[str], Path]) -> None:
    folder = tiny_folder(name)
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    prompts = random_prompts(LENGTHS)
    with Engine(ModelSpec(str(folder), dtype="float32", device="cpu"), threads=1) as engine:
        whole = [one for (one,) in said_in(engine, config(engine, kv_window=None), prompts)]
        at = MODELS.index(name)
        for way in (WAYS[at], WAYS[(at + 2) % len(WAYS)]):
            told = [one for (one,) in said_in(engine, config(engine, **way), prompts)]
            for prompt, answer in zip(prompts, told, strict=True):
                assert_said(module, prompt, answer)
            assert (told == whole) is (name == "mistral"), "whose layers see no further than what is kept"
        told = [one for (one,) in said_in(engine, config(engine, kv_sinks=0), prompts)]
        for prompt, answer in zip(prompts, told, strict=True):
            assert_said(module, prompt, answer, sinks=0)


def said_in(engine: Engine, config: EngineConfig, prompts: Sequence[list[int]]) -> list[list[list[int]]]:
    engine.begin(config)
    return said(engine, [Submission(prompt, GREEDY) for prompt in prompts])


HARD: tuple[dict[str, Any], ...] = (
    {},
    {"mode": "chunked", "token_budget": 12, "depth": 1},
    {"preemption": "swap"},
    {"preemption": "swap", "prefix_caching": True, "depth": 1, "offload_prefixes": True},
    {"mode": "disaggregated", "prefix_caching": True},
    {"mode": "chunked", "speculation": "ngram", "prefix_caching": True},
    {"cuda_graphs": False, "preemption": "auto", "kv_dtype": "int8"},
)


@pytest.mark.parametrize("way", HARD, ids=lambda way: " ".join(map(str, way.values())) or "plain")
def test_who_makes_way_says_the_same(demo: Engine, way: dict[str, Any]) -> None:
    """Samples too: in a pool in which not all have room, as in one that has more than enough."""
    random = random_prompts((30, 3, 5, 2, 50, 9))
    asked = [Submission([7 + token % 200 for token in prompt], GREEDY) for prompt in random]
    asked += [replace(asked[1], params=GREEDY.with_(temperature=0.8, seed=3, n=3))]
    found = []
    for blocks in (200, 16):
        wide = config(demo, blocks, **way)
        if wide.kv_dtype == "int8":
            wide = config(demo, blocks * 33 // 128, **way)
        trace = demo.begin(wide)
        found.append(said(demo, asked))
        check_blocks(trace)
        assert any(len(step.preempted) for step in trace.steps) is (blocks == 16)
        assert any(len(step.forgotten) for step in trace.steps)
    assert found[0] == found[1]
    if "preemption" in way:
        assert any(len(step.swap_event) for step in trace.steps)
    if "speculation" in way:
        assert any(int(step.accepted.sum()) for step in trace.steps if len(step.accepted))


def check_blocks(trace: Trace) -> None:
    """All of it went back; nobody who decodes held more than sinks, window and the block that is being filled."""
    header, held = trace.header, dict[tuple[int, int], set[int]]()
    assert header is not None
    most = (header.config.sink_tokens + WINDOW) // BLOCK + 1
    for step in trace.steps:
        columns = step.block_event, step.block_request, step.block_branch, step.block_place
        for event, request, branch, place in zip(*(column.tolist() for column in columns)):
            places = held.setdefault((request, branch), set())
            if event in (BlockEvent.TAKEN, BlockEvent.SHARED):
                assert place not in places
                places.add(place)
            elif request >= 0:
                places.remove(place)
        if len(step.forgotten):
            for request, branch, gone in zip(step.request.tolist(), step.branch.tolist(), step.forgotten.tolist()):
                assert not gone or len(held[request, branch]) <= most
    assert not any(held.values())
    assert trace.steps[-1].free_blocks + trace.steps[-1].cached_blocks == header.blocks


def test_a_pool_has_room_for_answers_that_are_longer_than_it(demo: Engine) -> None:
    trace = demo.begin(config(demo, 12, max_running=2))
    asked = GREEDY.with_(max_tokens=150)
    (long,), (other,) = said(demo, [Submission([5, 6, 7], asked), Submission([8, 9], asked)])
    assert len(long) == len(other) == 150
    assert not any(len(step.preempted) for step in trace.steps)
    check_blocks(trace)
    with pytest.raises(InvalidInput, match="the whole KV pool holds 48 tokens"):
        demo.submit([5] * 60, asked)


def test_who_began_elsewhere_goes_on_after_what_is_forgotten(demo: Engine) -> None:
    demo.begin(config(demo))
    ((whole,),) = said(demo, [Submission([5, 6, 7], GREEDY.with_(max_tokens=100))])
    cuts = (10, 29, 30, 61, 99)
    asked = [Submission([5, 6, 7], GREEDY.with_(max_tokens=100), said=(tuple(whole[:cut]),)) for cut in cuts]
    for cut, (rest,) in zip(cuts, said(demo, asked)):
        assert rest == whole[cut:]


def test_what_is_attended_to_leaves_out_what_is_forgotten(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tiny_folder("llama")
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    (prompt,) = random_prompts((9,))
    with Engine(ModelSpec(str(folder), dtype="float32", device="cpu"), threads=1) as engine:
        trace = engine.begin(config(engine, preemption="swap"))
        ((answer,),) = said(engine, [Submission(prompt, GREEDY.with_(attention=True))])
        save_trace(trace, tmp_path / "run.bsrun")
    ids = [*prompt, *answer]
    expected = torch.cat(reference(module, ids, len(prompt)).attentions).numpy()
    trace = load_trace(tmp_path / "run.bsrun")
    assert trace.header is not None
    told = [each for step in trace.steps for each in attended(step, trace.header)]
    sees = seen(len(prompt), len(ids))
    assert len(told) == NEW_TOKENS
    for query, each in enumerate(told, len(prompt) - 1):
        assert each.tokens.tolist() == sees[query].nonzero().flatten().tolist()
        np.testing.assert_allclose(np.sqrt(each.weights), np.sqrt(expected[:, :, query, each.tokens]), atol=0.6 / 255)


def test_what_cannot_forget_is_refused(demo: Engine, tiny_folder: Callable[[str], Path]) -> None:
    with pytest.raises(InvalidInput, match="kv_window=64: mode 'static' keeps K and V in one piece; use one of cont"):
        EngineConfig("static", kv_window=64)
    with pytest.raises(InvalidInput, match="kv_window=0: must be a number of tokens of at least 1, or None"):
        EngineConfig(kv_window=0)
    with pytest.raises(InvalidInput, match="kv_sinks=-1: must be a number of tokens, 0 for none"):
        EngineConfig(kv_sinks=-1)
    with pytest.raises(InvalidInput, match=r"a draft model reads all that was said.*use ngram, or None"):
        EngineConfig(kv_window=64, speculation="draft")
    demo.begin(EngineConfig(kv_window=64))
    with pytest.raises(InvalidInput, match="beam_width=2: a beam search needs the whole cache"):
        demo.submit("Once", SamplingParams(beam_width=2))
    with (
        Engine(ModelSpec(str(tiny_folder("mistral"))), threads=1) as engine,
        pytest.raises(InvalidInput, match="kv_window=7: layers of this model attend to the last 8 tokens"),
    ):
        engine.begin(EngineConfig(kv_window=7))
