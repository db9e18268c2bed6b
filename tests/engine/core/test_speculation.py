"""Drafted tokens through the whole engine: what is said stays the same, and what was drafted is told."""

import math
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams
from engine.core.setup import drafts
from engine.models.loading import LoadedModel, load
from engine.trace import Kind, Notice, Trace
from tests.engine.conftest import SMALL, begin_when_idle
from tests.engine.tiny_models import _llama_like, save_tiny_model

STORY = [{"role": "user", "content": "Tell me a story about a fox and a table."}]
SAMPLED = SamplingParams(max_tokens=36, temperature=1.5, top_p=0.95, seed=3, n=3)
SPECULATIONS = {
    "ngram": {"speculation": "ngram", "speculated": 5},
    "draft": {"speculation": "draft", "speculated": 4},
    "auto": {"speculation": "draft"},
}


def drafted(trace: Trace) -> tuple[int, int]:
    return sum(int(step.drafted.sum()) for step in trace.steps), sum(int(step.accepted.sum()) for step in trace.steps)


@pytest.mark.parametrize("mode", ["continuous", "chunked"])
def test_samples_are_the_same_with_drafts_as_without(large_demo: Engine, mode: str) -> None:
    """Several samples of a prompt, sampled, greedy and penalized requests, all at once."""
    asks = [SAMPLED, SamplingParams(max_tokens=36, temperature=0), SAMPLED.with_(n=1, repetition_penalty=1.2)]

    def said(config: EngineConfig) -> list[tuple[int, ...]]:
        begin_when_idle(large_demo, config)
        streams = [large_demo.submit(STORY, params) for params in asks]
        return [completion.token_ids for stream in streams for completion in stream.results(timeout=60)]

    plain = said(replace(SMALL, mode=mode))
    for kind, how in SPECULATIONS.items():
        assert said(replace(SMALL, mode=mode, prefix_caching=True, **how)) == plain
        proposed, kept = drafted(large_demo.trace)
        assert kept < proposed or kind == "auto", "which drafts what is likely"
        assert kept > 0 or kind == "ngram", "a story says little twice"
        penalized = [
            step.drafted[(step.request == 2) & (step.drafted > 0)]
            for step in large_demo.trace.steps
            if len(step.drafted)
        ]
        assert not any(map(len, penalized)), "what a penalty counts would depend on what is kept"


def test_a_sampled_token_has_the_models_distribution_where_drafts_are_verified(
    tiny_folder: Callable[[str], Path],
) -> None:
    """Three tokens of each request, the last two by a row that verifies a draft: a chi-square test of all 27 outcomes
    against transformers' own probabilities."""
    folder, prompt, count, most = tiny_folder("llama"), [5, 9, 200, 31], 3000, 3
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = EngineConfig(max_running=100, speculation="draft", draft=ModelSpec(str(folder)), speculated=2)
    params = SamplingParams(max_tokens=3, temperature=3.0, top_k=most, ignore_eos=True)
    with Engine(ModelSpec(str(folder), dtype="float32", device="cpu"), config, threads=1) as engine:
        streams = [engine.submit(prompt, params) for _ in range(count)]
        found = Counter(stream.result(timeout=60).token_ids for stream in streams)
        proposed, kept = drafted(engine.trace)
    assert 0.9 * count < proposed < count, "a few steps verify nothing: what they cost is measured"
    assert 0.3 * proposed < kept <= proposed

    def likely(ids: list[int]) -> dict[int, float]:
        with torch.inference_mode():
            top = (module(torch.tensor([ids])).logits[0, -1] / params.temperature).topk(most)
        return dict(zip(top.indices.tolist(), top.values.softmax(-1).tolist()))

    expected: dict[tuple[int, ...], float] = {}
    for first, p in likely(prompt).items():
        for second, q in likely([*prompt, first]).items():
            for third, r in likely([*prompt, first, second]).items():
                expected[first, second, third] = count * p * q * r
    assert set(found) <= set(expected)
    square = sum((found[outcome] - mean) ** 2 / mean for outcome, mean in expected.items())
    # Of 26 degrees of freedom, mean 26 and deviation sqrt(52): far beyond what chance gives, and fixed by the seed.
    assert min(expected.values()) > 5
    assert square < 26 + 3 * math.sqrt(52)


def test_the_record_tells_what_was_drafted_and_what_was_kept(large_demo: Engine) -> None:
    begin_when_idle(large_demo, replace(SMALL, **SPECULATIONS["draft"]))
    large_demo.submit(STORY, SamplingParams(max_tokens=60, temperature=0)).result(timeout=60)
    header, steps = large_demo.trace.header, [step for step in large_demo.trace.steps if step.drafted.any()]
    assert header.draft is not None
    assert header.draft.name == "demo draft 0.8M"
    assert header.bill is not None
    assert header.bill.draft == header.draft.weight_bytes
    assert header.bill.kv_pool == header.blocks * 16 * (header.model.kv_token_bytes + header.draft.kv_token_bytes)
    for step in steps:
        assert step.kind.tolist() == [Kind.DECODE]
        assert step.count[0] == 1 + step.drafted[0] == 1 + len(step.draft_token) == 1 + len(step.draft_text)
        kept, said = int(step.accepted[0]), step.token.tolist()
        assert said[:kept] == step.draft_token[:kept].tolist()
        assert len(said) in (kept, kept + 1)
        if len(said) == kept + 1 <= step.drafted[0]:
            assert said[kept] != step.draft_token[kept], "the first that differs ends the row"
        assert step.wasted[0] == step.count[0] - len(said)
        assert step.seconds["draft"] > 0


def test_a_draft_follows_prompts_of_any_length_and_prefixes_that_were_found(large_demo: Engine) -> None:
    """The draft computes a long prompt in parts too; K and V of a prefix that was found it computes for itself."""
    prompt = np.random.default_rng(0).integers(10, 3000, 400).tolist()
    params = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
    plain = large_demo.submit(prompt, params).result(timeout=60).token_ids
    begin_when_idle(large_demo, replace(SMALL, token_budget=64, prefix_caching=True, **SPECULATIONS["draft"]))
    kept = []
    for _ in range(2):
        before = drafted(large_demo.trace)[1]
        assert large_demo.submit(prompt, params).result(timeout=60).token_ids == plain
        kept.append(drafted(large_demo.trace)[1] - before)
    assert abs(kept[0] - kept[1]) <= 4, "a step that verifies nothing, to see what that costs, may be one of these"
    assert min(kept) > 4
    assert any(step.reused.any() for step in large_demo.trace.steps)


def test_a_draft_that_fails_costs_nobody_an_answer(large_demo: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(max_tokens=40, temperature=0)
    plain = large_demo.submit(STORY, params).result(timeout=60).token_ids
    begin_when_idle(large_demo, replace(SMALL, **SPECULATIONS["draft"]))
    assert large_demo.prepared is not None
    assert large_demo.prepared.draft is not None
    runner, after = large_demo.prepared.draft.runner, iter(range(9))

    def short_of_memory(rows: object) -> None:
        if next(after, None) is None:
            raise torch.OutOfMemoryError("tried to allocate 20 GiB")

    monkeypatch.setattr(runner, "choose", short_of_memory)
    assert large_demo.submit(STORY, params).result(timeout=60).token_ids == plain
    assert 0 < drafted(large_demo.trace)[0] < 40
    (told,) = [record.text for record in large_demo.trace.records if isinstance(record, Notice)]
    assert told.startswith("drafting failed: tried to allocate 20 GiB")
    monkeypatch.undo()
    begin_when_idle(large_demo, replace(SMALL, **SPECULATIONS["draft"]))
    assert large_demo.submit(STORY, params).result(timeout=60).token_ids == plain
    assert drafted(large_demo.trace)[0] > 20


def test_the_cache_there_was_is_gone_before_a_draft_is_loaded(
    large_demo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_when_idle(large_demo, SMALL)
    before, found = weakref.ref(large_demo.runner), list[object]()

    def looking(spec: ModelSpec, **given: Any) -> LoadedModel:
        found.append(before())
        return load(spec, **given)

    monkeypatch.setattr(drafts, "load", looking)
    begin_when_idle(large_demo, replace(SMALL, **SPECULATIONS["draft"]))
    assert found == [None]
    with pytest.raises(InvalidInput, match="it must be where the model is"):
        large_demo.begin(replace(SMALL, speculation="draft", draft=ModelSpec("demo-draft", device="cuda:3")))
    assert found == [None], "what is refused costs no other load"


def test_what_cannot_draft_is_refused_with_the_reason(large_demo: Engine, tmp_path: Path) -> None:
    for wrong, word in (
        ({"speculation": "medusa"}, "ngram"),
        ({"speculation": "ngram", "mode": "static"}, "continuous"),
        ({"speculation": "ngram", "depth": 1}, "depth"),
        ({"speculation": "ngram", "speculated": 0}, "speculated"),
        ({"speculation": "ngram", "speculated": "many"}, "speculated"),
        ({"speculation": "ngram", "draft": ModelSpec("demo-draft")}, "draft"),
    ):
        with pytest.raises(InvalidInput, match=word):
            EngineConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="it must be where the model is"):
        large_demo.begin(replace(SMALL, speculation="draft", draft=ModelSpec("demo-draft", device="cuda:3")))
    save_tiny_model(_llama_like("Llama"), tmp_path / "other")
    tokenizer = (tmp_path / "other" / "tokenizer.json").read_text("utf-8")
    (tmp_path / "other" / "tokenizer.json").write_text(tokenizer.replace('"Ġfox"', '"Ġfoxes!"'), "utf-8")
    with pytest.raises(InvalidInput, match="vocabulary"):
        large_demo.begin(replace(SMALL, speculation="draft", draft=ModelSpec(str(tmp_path / "other"))))
    large_demo.begin(SMALL)
    assert large_demo.submit(STORY, SamplingParams(max_tokens=3)).result(timeout=60).error == ""


def test_a_model_that_brings_no_draft_says_so(tiny_folder: Callable[[str], Path]) -> None:
    config = EngineConfig(max_running=2, speculation="draft")
    with pytest.raises(InvalidInput, match="no draft is known"):
        Engine(ModelSpec(str(tiny_folder("llama")), device="cpu"), config, threads=1)
