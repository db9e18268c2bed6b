"""How likely a model finds its prompt: transformers' log-softmax in float32, however the prompt is cut and halted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, Submission
from engine.core.stream import Completion
from engine.scheduler import prompt_scores
from engine.trace import PromptScored, Trace, load_trace, save_trace
from tests.engine.tiny_models import VOCABULARY

MODELS = ("llama", "qwen3", "mistral", "gemma2", "gemma3", "phi3", "mixtral", "gpt2")
LENGTHS = (26, 41, 1, 17)  # of prompts; one of a single token, which tells nothing
ASKED = 3
SMALL: dict[str, Any] = {"max_running": 8, "token_budget": 16, "block_size": 4}  # prompts go in parts


def prompts() -> list[list[int]]:
    random = torch.Generator().manual_seed(3)
    return [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in LENGTHS]


def asking(**changes: Any) -> SamplingParams:
    return SamplingParams(max_tokens=12, temperature=0, ignore_eos=True, prompt_logprobs=ASKED).with_(**changes)


def assert_told(done: Completion, prompt: list[int], expected: torch.Tensor) -> None:
    """`expected` `[tokens, vocabulary]` are log-probabilities."""
    told = done.prompt_logprobs
    assert told is not None
    assert told[0] is None
    assert len(told) == len(prompt)
    for at, place in enumerate(told[1:]):
        assert place is not None
        assert place.token == prompt[at + 1]
        assert place.logprob == pytest.approx(float(expected[at, place.token]), abs=1e-4)
        best = expected[at].topk(ASKED)
        assert [token for token, _ in place.alternatives] == best.indices.tolist()
        assert [p for _, p in place.alternatives] == pytest.approx(best.values.tolist(), abs=1e-4)


def records(trace: Trace) -> list[PromptScored]:
    return [record for record in trace.records if isinstance(record, PromptScored)]


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_is_as_likely_as_transformers_says(name: str, tiny_folder: Callable[[str], Path]) -> None:
    """In parts, beside requests that ask for nothing, one step ahead or none, preempted, and for two samples."""
    folder = tiny_folder(name)
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        expected = [module(torch.tensor([p])).logits[0].log_softmax(-1) for p in prompts()]
    at = MODELS.index(name)
    with Engine(ModelSpec(str(folder), dtype="float32", device="cpu"), threads=1) as engine:
        memory = 24 * 4 * engine.card.kv_token_bytes
        engine.begin(EngineConfig(("continuous", "chunked")[at % 2], **SMALL, depth=at // 2 % 2, kv_memory=memory))
        plain = Submission(prompts()[0], SamplingParams(max_tokens=30, temperature=0, ignore_eos=True))
        asked = [Submission(p, asking(n=1 + (i == 3))) for i, p in enumerate(prompts())]
        streams = engine.submit_many([plain, *asked])
        assert streams[0].result(30).prompt_logprobs is None
        for stream, prompt, logprobs in zip(streams[1:], prompts(), expected, strict=True):
            for done in stream.results(30):
                assert_told(done, prompt, logprobs)
        steps = engine.trace.steps
        assert any(len(step.preempted) for step in steps)
        assert sorted(record.request for record in records(engine.trace)) == [1, 2, 3, 4]


@pytest.mark.parametrize("way", [{}, {"preemption": "swap", "speculation": "ngram"}], ids=["recomputed", "swapped"])
def test_what_was_told_is_not_told_again(demo: Engine, monkeypatch: pytest.MonkeyPatch, way: dict[str, Any]) -> None:
    """A prompt that is preempted after it was told of, or half-way, is computed again, and not its logits."""
    told: list[range] = []
    tell = prompt_scores.PromptScores.tell

    def counted(scores: prompt_scores.PromptScores, positions: range, *columns: Any) -> None:
        told.append(positions)
        tell(scores, positions, *columns)

    monkeypatch.setattr(prompt_scores.PromptScores, "tell", counted)
    words, memory = list(range(40, 100)), 30 * 4 * demo.card.kv_token_bytes
    demo.begin(EngineConfig("chunked", max_running=2, token_budget=2, block_size=4, kv_memory=memory, **way))
    first = demo.submit(words[:8], SamplingParams(max_tokens=100, temperature=0, ignore_eos=True))
    second = demo.submit(words, asking(max_tokens=40))
    assert first.result(30).finish_reason == second.result(30).finish_reason == "length"
    assert any(1 in step.preempted for step in demo.trace.steps)
    again = sum(int(step.count[step.request == 1].sum()) for step in demo.trace.steps) > len(words) + 40
    assert again or way
    assert sorted(at for positions in told for at in positions) == list(range(len(words) - 1))


def test_a_step_tells_of_no_more_positions_than_there_is_memory_for(
    demo: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = list(range(40, 100))
    demo.begin(EngineConfig("chunked", max_running=8))
    whole = demo.submit(words, asking()).result(30)
    monkeypatch.setattr(prompt_scores, "LOGITS", 4 * demo.card.vocabulary * 10)
    parted = demo.submit_many([Submission(words, asking()), Submission(words, asking())])
    for stream in parted:
        found = [place.logprob for place in stream.result(30).prompt_logprobs or () if place]
        assert found == pytest.approx([place.logprob for place in whole.prompt_logprobs or () if place], abs=1e-4)
    counts = [int(step.count.sum()) for step in demo.trace.steps if int(step.request.max(initial=0)) > 0]
    assert max(counts) <= 11  # of ten positions, and one of the row that begins beside


def test_a_request_that_is_told_reads_no_cached_prefix_but_others_read_its(demo: Engine) -> None:
    words = list(range(40, 80))
    demo.begin(EngineConfig("chunked", **SMALL, prefix_caching=True))
    for params in (asking(), asking(), asking(prompt_logprobs=None)):
        demo.submit(words, params).result(30)
    reused = dict.fromkeys(range(3), 0)
    for step in demo.trace.steps:
        for request, tokens in zip(step.request.tolist(), step.reused.tolist()):
            reused[request] += tokens
    assert reused == {0: 0, 1: 0, 2: 36}


def test_the_record_says_the_prompts_text_and_outlives_its_file(demo: Engine, tmp_path: Path) -> None:
    text = "Once upon a time a fox — ein Füchschen 🦊 — found a kite."
    stream = demo.submit(text, asking(prompt_logprobs=0))
    done = stream.result(30)
    assert stream.prompt_scored is not None
    save_trace(demo.trace, tmp_path / "run.bsrun")
    (record,) = records(load_trace(tmp_path / "run.bsrun"))
    assert record.text == text
    assert len(record.text_end) == len(record.token) == done.metrics.prompt_tokens
    assert record.alternatives == 0
    np.testing.assert_array_equal(record.logprob, stream.prompt_scored.logprob)
    assert all(place is None or not place.alternatives for place in done.prompt_logprobs or ())


@pytest.mark.parametrize("value", [-1, 21, 1.5, True])
def test_a_number_of_alternatives_that_cannot_be_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"prompt_logprobs=.*from 0 to 20"):
        SamplingParams(prompt_logprobs=value)


def test_what_cannot_tell_of_prompts_is_refused(demo: Engine) -> None:
    with pytest.raises(InvalidInput, match=r"prompt_logprobs=0: a beam search .* leave it out"):
        SamplingParams(prompt_logprobs=0, beam_width=2)
    demo.begin(EngineConfig("static", max_running=4))
    with pytest.raises(InvalidInput, match=r"prompt_logprobs=3: mode 'static' .* continuous, chunked"):
        demo.submit("A fox", asking())


def test_a_prompt_that_is_cancelled_half_way_is_not_told_of(large_demo: Engine) -> None:
    large_demo.begin(EngineConfig("chunked", **SMALL))
    stream = large_demo.submit(list(range(40, 300)), asking())
    stream.cancel()
    assert stream.result(30).prompt_logprobs is None
    assert not records(large_demo.trace)
