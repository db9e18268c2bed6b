"""What tokens attended to: transformers' own weights in float32, in every mode, however a row is computed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, Submission, Trace
from engine.trace import Array, Step, Submitted, attended, load_trace, save_trace
from tests.engine.tiny_models import VOCABULARY

# Grouped queries, sliding windows, capped scores, sinks, norms of queries and keys, heads of their own, learned places,
# latents.
MODELS = ("llama", "mistral", "gemma2", "gemma3", "gpt-oss", "phi3", "gpt2", "deepseek-v3")
WAYS: tuple[dict[str, Any], ...] = (
    {"mode": "chunked", "token_budget": 16, "depth": 1},
    {"mode": "static"},
    {"mode": "continuous", "prefix_caching": True},
    {"mode": "continuous-padded"},
    {"mode": "recompute"},
    {"mode": "disaggregated"},
)
LENGTHS = (26, 9, 17)
CODE = 0.6 / 255  # what rounding costs the root of a weight
WATCHED = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, attention=True)


def prompts() -> list[list[int]]:
    random = torch.Generator().manual_seed(3)
    return [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in LENGTHS]


def told(trace: Trace) -> dict[tuple[int, int], list[Array]]:
    """The weights of each sample's tokens, in order."""
    found: dict[tuple[int, int], list[Array]] = {}
    assert trace.header is not None
    for step in trace.steps:
        for each in attended(step, trace.header):
            found.setdefault((each.request, each.branch), []).append(each.weights)
    return found


def assert_as_expected(found: list[Array], expected: Array, prompt: int) -> None:
    """`expected` `[layers, heads, tokens, tokens]`; the first token is drawn at the end of a prompt of so many."""
    for at, weights in enumerate(found):
        context = prompt + at
        assert weights.shape[2] == context
        wanted = expected[:, :, context - 1, :context]
        np.testing.assert_allclose(np.sqrt(weights), np.sqrt(wanted), atol=CODE)


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_transformers(name: str, tiny_folder: Callable[[str], Path]) -> None:
    folder = tiny_folder(name)
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    at = MODELS.index(name)
    with Engine(ModelSpec(str(folder), dtype="float32", device="cpu"), threads=1) as engine:
        for way in (WAYS[at % len(WAYS)], WAYS[(at + 2) % len(WAYS)]):
            engine.begin(EngineConfig(max_running=8, block_size=4, kv_memory=200 * engine.card.kv_token_bytes, **way))
            unwatched = Submission(prompts()[0], WATCHED.with_(attention=False, max_tokens=9))
            streams = engine.submit_many([unwatched, *(Submission(p, WATCHED) for p in prompts())])
            answers = [list(stream.result(30).token_ids) for stream in streams]
            found = told(engine.trace)
            assert answers[1] == answers[0][:6]
            assert {request for request, _ in found} == {1, 2, 3}
            for request, prompt in enumerate(prompts(), 1):
                weights = found[request, 0]
                assert len(weights) == len(answers[request]) == 6
                ids = torch.tensor([prompt + answers[request]])
                with torch.inference_mode():
                    layers = module(ids, output_attentions=True).attentions
                assert_as_expected(weights, torch.cat(layers).numpy(), len(prompt))


HARD: tuple[dict[str, Any], ...] = (
    {"preemption": "swap", "speculation": "draft", "draft": ModelSpec("demo-draft")},
    {"preemption": "recompute", "kv_dtype": "int8"},
)


@pytest.mark.parametrize("way", HARD, ids=["draft", "codes"])
def test_who_makes_way_or_is_drafted_for_tells_the_same(demo: Engine, way: dict[str, Any]) -> None:
    """Samples too: beside the first, as the same prompt by itself would."""
    asked = WATCHED.with_(max_tokens=24)
    demo.begin(EngineConfig("chunked", block_size=4, kv_dtype=way.get("kv_dtype", "auto")))
    words = [*range(40, 60)] * 2
    demo.submit(words, asked).result(30)
    alone = told(demo.trace)[0, 0]
    assert demo.trace.header is not None
    memory = 30 * 4 * demo.trace.header.model.kv_token_bytes * (2 if "draft" in way else 1)
    demo.begin(EngineConfig("chunked", block_size=4, max_running=8, kv_memory=memory, **way))
    for stream in demo.submit_many([Submission(words, asked), Submission(words, asked.with_(n=2))]):
        stream.result(30)
    steps = demo.trace.steps
    assert any(len(step.preempted) for step in steps)
    assert "speculation" not in way or any(int(step.accepted.sum()) for step in steps if len(step.accepted))
    found = told(demo.trace)
    assert set(found) == {(0, 0), (1, 0), (1, 1)}
    for weights in found.values():
        assert len(weights) == 24
        for one, other in zip(weights, alone, strict=True):
            np.testing.assert_allclose(np.sqrt(one), np.sqrt(other), atol=2 * CODE)


def test_a_watched_step_is_not_replayed_and_those_after_are(demo: Engine) -> None:
    demo.begin(EngineConfig("chunked"))
    demo.submit("Once upon a time", WATCHED).result(30)
    demo.submit("Once upon a time", WATCHED.with_(attention=False)).result(30)
    graphs = {bool(len(step.attended)): set[int]() for step in demo.trace.steps if step.rows}
    for step in demo.trace.steps:
        if step.rows:
            graphs[bool(len(step.attended))].add(step.graph)
    assert graphs[True] == {0}
    assert 0 not in graphs[False]


def test_heads_are_told_on_average_where_all_would_be_much(demo: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    demo.begin(EngineConfig("chunked"))
    demo.submit("Once upon a time", WATCHED).result(30)
    whole = told(demo.trace)[0, 0]
    monkeypatch.setattr("engine.runner.attention_watch.MOST", whole[2].size)
    demo.begin(EngineConfig("chunked"))
    demo.submit("Once upon a time", WATCHED).result(30)
    parted = told(demo.trace)[0, 0]
    assert [each.shape[1] for each in parted] == [demo.card.heads] * 3 + [1] * 3
    np.testing.assert_allclose(parted[-1], whole[-1].mean(1, keepdims=True), atol=2 * CODE)


def test_it_is_kept_with_the_run_beside_the_prompts_tokens(demo: Engine, tmp_path: Path) -> None:
    text = "Once upon a time a fox — ein Füchschen 🦊 — found a kite."
    demo.submit(text, WATCHED).result(30)
    demo.submit(text, WATCHED.with_(attention=False)).result(30)
    save_trace(demo.trace, tmp_path / "run.bsrun")
    loaded = load_trace(tmp_path / "run.bsrun")
    first, second = (record for record in loaded.records if isinstance(record, Submitted))
    assert "".join(first.token_text) == text
    assert len(first.token_text) == len(first.token_ids)
    assert second.token_text == ()
    for one, other in zip(told(demo.trace)[0, 0], told(loaded)[0, 0], strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_cannot_tell_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"attention=True: a beam search .* leave it out"):
        SamplingParams(attention=True, beam_width=2)
    with pytest.raises(InvalidInput, match=r"attention='yes': must be True or False"):
        SamplingParams(attention="yes")  # type: ignore[arg-type]


def test_records_that_cannot_be_are_not_believed(demo: Engine, tmp_path: Path) -> None:
    demo.submit("Once upon a time", WATCHED).result(30)
    at = next(i for i, record in enumerate(demo.trace.records) if isinstance(record, Step) and len(record.attended))
    step = demo.trace.records[at]
    assert isinstance(step, Step)
    for broken in (
        replace(step, attended=step.attended[:-1]),
        replace(step, attended_end=step.attended_end + 1),
        replace(step, attended_context=step.attended_context + 1),
        replace(step, attended_token_index=step.attended_token_index + 1),
        replace(step, attended=step.attended.astype(np.int32)),
    ):
        records = [*demo.trace.records]
        records[at] = broken
        save_trace(Trace(records), tmp_path / "broken.bsrun")
        with pytest.raises(InvalidInput):
            load_trace(tmp_path / "broken.bsrun")
