"""Prompts made shorter on a real engine: by information, summary and fields, and what that buys and costs."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, compare_compressed, compress
from engine.compression import Scored, score
from engine.compression.effect import divergence_of
from engine.jobs import LoadCancelled, LoadProgress
from engine.workloads import demo_workload
from tests.engine.conftest import begin_when_idle

STORY = (
    "Once upon a time there was a brave fox. The fox lived in the old mill. One day the fox found a golden violin. "
    "The fox wanted to play it.\n\nTell me a story about a fox and a violin."
)
CHAT = [{"role": "user", "content": STORY}]


@pytest.fixture(scope="module")
def scored(demo_engine: Engine) -> Scored:
    begin_when_idle(demo_engine, EngineConfig(max_running=4))
    return score(demo_engine, STORY)


def test_the_information_is_the_models_own(demo_engine: Engine, scored: Scored) -> None:
    told = demo_engine.submit(STORY, SamplingParams(max_tokens=1, prompt_logprobs=0)).result(30).prompt_logprobs
    assert told is not None
    bits = -np.array([place.logprob for place in told if place]) / np.log(2)
    assert sum(piece.bits for piece in scored.pieces) == pytest.approx(bits.sum() + bits.mean(), rel=1e-4)
    assert scored.tokens == len(told)
    assert "".join(piece.text for piece in scored.pieces) == STORY
    assert scored.pieces[-1].text == "Tell me a story about a fox and a violin."
    assert scored.pieces[-1].fixed


def test_the_least_informative_words_go_first(scored: Scored) -> None:
    kept = scored.kept(0.5)
    free = [(piece.density, stays) for piece, stays in zip(scored.pieces, kept) if not piece.fixed]
    assert max(d for d, stays in free if not stays) <= min(d for d, stays in free if stays)
    short = scored.compressed(0.5)
    assert isinstance(short, str)
    assert short.endswith("\n\nTell me a story about a fox and a violin.")
    left = sum(piece.tokens for piece, stays in zip(scored.pieces, kept) if stays and not piece.fixed)
    assert left <= 0.5 * sum(piece.tokens for piece in scored.pieces if not piece.fixed)


def test_by_information(demo: Engine) -> None:
    found = compress(demo, CHAT, ratio=0.5)
    assert found.tokens_after < found.tokens_before
    assert found.prompt == [{"role": "user", "content": found.prompt[0]["content"]}]  # type: ignore[index]
    assert found.tokens_after == demo.submit(found.prompt).prompt_tokens
    assert found.kept.count(False) > 5
    assert not found.text


def test_the_draft_model_can_score(large_demo: Engine) -> None:
    by_draft = score(large_demo, STORY, scorer=ModelSpec("demo-draft"))
    assert by_draft.scored_by != large_demo.card.name
    assert [piece.text for piece in by_draft.pieces] == [piece.text for piece in score(large_demo, STORY).pieces]


@pytest.mark.parametrize(
    ("beside", "asked", "given"), [("cuda:0", "auto", "cpu"), ("cuda:0", "cuda:1", "cuda:1"), ("cpu", "auto", "auto")]
)
def test_a_scorer_goes_where_the_engines_pool_leaves_memory(
    demo: Engine, monkeypatch: pytest.MonkeyPatch, beside: str, asked: str, given: str
) -> None:
    """On a GPU the pool takes it all: the scorer is on the CPU, and is said to be."""
    loaded: list[str] = []

    @contextmanager
    def process(spec: ModelSpec, config: EngineConfig, **_: Any) -> Iterator[Any]:
        loaded.append(spec.device)
        device = "cpu" if spec.device == "auto" else spec.device
        yield SimpleNamespace(card=replace(demo.card, device=device), submit=demo.submit)

    monkeypatch.setattr(sys.modules["engine.compression.compressed"], "EngineProcess", process)
    engine: Any = SimpleNamespace(card=replace(demo.card, device=beside), config=demo.config)
    scored = score(engine, STORY, scorer=ModelSpec("demo-draft", device=asked))
    assert loaded == [given]
    assert scored.scored_by == f"demo draft 0.8M{' (CPU)' if (beside, given) == ('cuda:0', 'cpu') else ''}"


def test_by_summary(demo: Engine) -> None:
    found = compress(demo, CHAT, method="summary", ratio=0.3)
    assert found.prompt == [{"role": "user", "content": f"{found.text}\n\nTell me a story about a fox and a violin."}]
    assert found.kept == (False, True)


class Tale(BaseModel):
    hero: str


@pytest.mark.parametrize("fields", [["hero", "place"], Tale], ids=["names", "pydantic"])
def test_to_fields(demo: Engine, fields: Any) -> None:
    pytest.importorskip("llguidance")
    found = compress(demo, STORY, method="fields", fields=fields if fields is not Tale else short_tale())
    assert isinstance(found.prompt, str)
    assert found.text.startswith('{"hero": "')
    assert found.prompt == f"{found.text}\n\nTell me a story about a fox and a violin."


def short_tale() -> dict[str, Any]:
    """The model's schema, its text held short: the demo model ends none by itself."""
    schema = Tale.model_json_schema()
    schema["properties"]["hero"]["maxLength"] = 20
    return schema


def test_what_it_buys_and_costs(demo: Engine) -> None:
    demo.begin(EngineConfig("chunked", max_running=4))
    heard: list[LoadProgress] = []
    found = compress(demo, CHAT, ratio=0.5)
    effect = compare_compressed(demo, CHAT, found.prompt, answer=12, rounds=2, report=heard.append)
    assert effect.before.tokens == found.tokens_before
    assert effect.saved == found.tokens_before - found.tokens_after
    assert len(effect.before.ttft) == len(effect.after.prefill) == 2
    assert all(0 < p <= t for p, t in zip(effect.before.prefill, effect.before.ttft))
    assert len(effect.divergence) == len(effect.before.token_ids)
    assert effect.kl > 0
    assert 0 <= effect.front <= 12
    assert heard[-1].done == heard[-1].total - 1
    assert effect.to_json()["kl"] == effect.kl


def test_a_prompt_beside_itself_moves_nothing(demo: Engine) -> None:
    prompt = demo_workload(1).arrivals[0].prompt
    effect = compare_compressed(demo, prompt, prompt, answer=8, rounds=1)
    assert effect.saved == 0
    assert effect.kl == pytest.approx(0.0, abs=1e-4)
    assert effect.agreement == 1.0


def test_the_divergence_is_a_lower_bound(demo: Engine) -> None:
    random = np.random.default_rng(0)
    p, q = (np.exp(random.normal(size=40) * 2) for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    told = [{int(i): float(np.log(d[i])) for i in np.argsort(d)[-10:]} for d in (p, q)]
    bound = divergence_of(*told)
    assert 0 < bound <= float((p * np.log(p / q)).sum())
    everything = [{i: float(np.log(d[i])) for i in range(40)} for d in (p, q)]
    assert divergence_of(*everything) == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-6)


def test_what_cannot_be_is_refused(demo: Engine) -> None:
    with pytest.raises(InvalidInput, match=r"ratio=1.5: must be between 0 and 1"):
        compress(demo, STORY, ratio=1.5)
    with pytest.raises(InvalidInput, match="method='magic': must be one of information, summary, fields"):
        compress(demo, STORY, method="magic")
    with pytest.raises(InvalidInput, match=r"fields: .* give both, or neither"):
        compress(demo, STORY, method="fields")
    demo.begin(EngineConfig(prefix_caching=True))
    with pytest.raises(InvalidInput, match=r"prefix_caching=True: .* switch it off to measure"):
        compare_compressed(demo, STORY, STORY)


def test_it_can_be_cancelled(large_demo: Engine) -> None:
    cancelled = threading.Event()

    def hear(progress: LoadProgress) -> None:
        if progress.done == 3:
            cancelled.set()

    with pytest.raises(LoadCancelled):
        compare_compressed(large_demo, STORY, STORY, report=hear, cancelled=cancelled)
    assert len(large_demo.trace.requests) == 3


def test_a_mode_without_blocks_says_what_else_to_score_with(demo_engine: Engine) -> None:
    begin_when_idle(demo_engine, EngineConfig("static", 2))
    with pytest.raises(InvalidInput, match=r"mode 'static' cannot tell .* continuous, chunked, or let another model"):
        score(demo_engine, STORY)
    begin_when_idle(demo_engine, EngineConfig(max_running=4))
