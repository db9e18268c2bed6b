"""Beam search gives transformers' sequences and scores in float32, whatever runs beside it and however it is halted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import resources
from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, Submission
from engine.core.stream import Completion
from engine.models.loading import load
from engine.trace import Fate, FinishReason, Step
from tests.engine.tiny_models import random_prompts

MODELS = ("llama", "qwen3", "mistral", "gemma2", "gemma3", "phi3", "mixtral", "gpt2")
LENGTHS = (9, 26, 17)  # of prompts, shorter and longer than blocks and windows
WIDTH, NEW = 4, 14


def prompts() -> list[list[int]]:
    return random_prompts(LENGTHS, seed=11)


@dataclass(frozen=True)
class Way:
    """How to search; `eos` ends a text."""

    width: int = WIDTH
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    eos: list[int] | None = None
    new: int = NEW

    @property
    def params(self) -> SamplingParams:
        rules = {"length_penalty": self.length_penalty, "early_stopping": self.early_stopping}
        return SamplingParams(max_tokens=self.new, beam_width=self.width, ignore_eos=self.eos is None, **rules)


Found = list[tuple[list[int], float]]


@torch.inference_mode()
def reference(module: torch.nn.Module, prompt: list[int], way: Way, **options: Any) -> Found:
    """transformers' sequences and their scores, best first."""
    out = module.generate(  # type: ignore[operator]
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=way.new,
        do_sample=False,
        num_beams=way.width,
        num_return_sequences=way.width,
        length_penalty=way.length_penalty,
        early_stopping=way.early_stopping,
        eos_token_id=way.eos,
        pad_token_id=0,
        output_scores=True,
        return_dict_in_generate=True,
        **options,
    )
    found = []
    generated = out.sequences[:, len(prompt) :]
    lengths = (out.beam_indices >= 0).sum(-1).tolist()  # the rest is padding
    for sequence, length, score in zip(generated.tolist(), lengths, out.sequences_scores.tolist()):
        found.append((sequence[:length], score))
    return found


def assert_same(completions: list[Completion], expected: Found) -> None:
    assert [list(c.token_ids) for c in completions] == [tokens for tokens, _ in expected]
    for completion, (tokens, score) in zip(completions, expected):
        assert completion.score == pytest.approx(score, abs=1e-4)
        assert len(completion.logprobs) == len(tokens)


@pytest.fixture(scope="module")
def expected(tiny_folder: Callable[[str], Path]) -> Callable[[str], list[Found]]:
    """What transformers finds for all prompts; computed once a model."""
    found: dict[str, list[Found]] = {}

    def of(name: str) -> list[Found]:
        if name not in found:
            module = AutoModelForCausalLM.from_pretrained(
                tiny_folder(name), dtype=torch.float32, attn_implementation="eager"
            ).eval()
            found[name] = [reference(module, prompt, Way()) for prompt in prompts()]
        return found[name]

    return of


@pytest.fixture(scope="module")
def demo() -> Iterator[Engine]:
    with Engine(load(ModelSpec(dtype="float32", device="cpu")), threads=1) as engine:
        yield engine


@contextmanager
def tiny(folder: Path, config: EngineConfig, blocks: int = 0) -> Iterator[Engine]:
    model = load(ModelSpec(str(folder), dtype="float32", device="cpu"))
    memory = blocks * config.block_size * model.card.kv_token_bytes
    with Engine(model, replace(config, kv_memory=memory or None), threads=1) as engine:
        yield engine


SMALL = EngineConfig(max_running=16, token_budget=32, block_size=4)
OTHERS = (
    SamplingParams(max_tokens=20, temperature=0, ignore_eos=True),
    SamplingParams(max_tokens=20, temperature=1.0, seed=3, ignore_eos=True, n=2),
)


@pytest.mark.parametrize("name", MODELS)
def test_sequences_and_scores_are_those_of_transformers_among_other_requests(
    name: str, tiny_folder: Callable[[str], Path], expected: Callable[[str], list[Found]]
) -> None:
    """Blocks do not suffice for all at once, and one of the searches is cancelled on its way."""
    preempted: set[int] = set()
    with tiny(tiny_folder(name), replace(SMALL, speculation="ngram", speculated=2), 26) as engine:
        for mode, depth in (("continuous", 0), ("chunked", 1)):
            if depth:
                ahead = replace(engine.config, mode=mode, depth=depth, prefix_caching=True, speculation=None)
                engine.begin(ahead)
            asked = [Submission(prompt, Way().params) for prompt in prompts()]
            asked[1:1] = [Submission(prompts()[2][:16] + [5], others) for others in OTHERS]
            streams = engine.submit_many([*asked, Submission(prompts()[0], Way(new=20).params)])
            for _ in streams[0]:
                streams[-1].cancel()
            for stream, found in zip([streams[0], *streams[3:5]], expected(name)):
                assert_same(stream.results(60), found)
            assert len(streams[1].result(60).token_ids) == 20
            cut = streams[-1].results(60)
            assert {one.finish_reason for one in cut} == {FinishReason.CANCELLED}
            preempted.update(r for step in engine.trace.steps for r in step.preempted.tolist())
            pool = engine.scheduler.ledger.pool
            assert pool.free + pool.cached == pool.total
    assert preempted & {0, 3, 4}, "searches gave their blocks up on their way"


@pytest.mark.parametrize("stopping", [True, False, "never"])
def test_texts_that_end_are_kept_and_the_search_ends_as_in_transformers(
    stopping: bool | str, tiny_folder: Callable[[str], Path], expected: Callable[[str], list[Found]]
) -> None:
    """Tokens that beams are known to say end the text."""
    module = AutoModelForCausalLM.from_pretrained(tiny_folder("llama"), dtype=torch.float32).eval()
    model = load(ModelSpec(str(tiny_folder("llama")), dtype="float32", device="cpu"))
    said = [tokens for found in expected("llama") for tokens, _ in found]
    ends = sorted({tokens[at] for tokens in said for at in (4, 8)})
    with Engine(replace(model, eos=frozenset(ends)), SMALL, threads=1) as engine:
        ended, shorter = set(), 0
        for penalty in (-0.5, 0.0, 1.0, 2.5):
            way = Way(3, penalty, stopping, ends)
            streams = [engine.submit(prompt, way.params) for prompt in prompts()]
            for prompt, stream in zip(prompts(), streams):
                completions = stream.results(60)
                assert_same(completions, reference(module, prompt, way))
                ended |= {c.finish_reason for c in completions}
                shorter += any(len(c.token_ids) < NEW for c in completions)
        assert FinishReason.STOP in ended
        assert shorter


def test_the_demo_model_tells_the_beams_of_transformers(demo: Engine) -> None:
    """With its own end of text, and with a text that ends one."""
    module = AutoModelForCausalLM.from_pretrained(resources.path("models/stories-5m"), dtype=torch.float32).eval()
    tokenizer, eos = demo.model.tokenizer, sorted(demo.model.eos)
    prompt = tokenizer("Once upon a time, there was a little").input_ids
    demo.begin(EngineConfig())
    for ways in ({}, {"length_penalty": 0.0, "early_stopping": True}):
        way = Way(5, new=60, eos=eos, **ways)
        assert_same(demo.submit(prompt, way.params).results(60), reference(module, prompt, way))
    completions = demo.submit(prompt, SamplingParams(max_tokens=60, beam_width=4, stop=(".",))).results(60)
    way = Way(4, new=60, eos=eos)
    assert_same(completions, reference(module, prompt, way, stop_strings=["."], tokenizer=tokenizer))
    for completion in completions:
        assert "." not in completion.text
        assert "." in tokenizer.decode(completion.token_ids)
        assert completion.finish_reason is FinishReason.STOP


def test_a_stream_tells_what_is_certain_and_the_best_first(demo: Engine) -> None:
    trace = demo.begin(EngineConfig())
    stream = demo.submit("The sun was", SamplingParams(max_tokens=40, beam_width=4, logprobs=2, ignore_eos=True))
    completions = stream.results(60)
    steps, view = list(trace.steps), trace.requests[stream.request]
    scores = [completion.score for completion in completions]
    assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]
    for completion, sample in zip(completions, view.samples, strict=True):
        deltas = [delta for delta in stream.deltas if delta.sample == completion.sample]
        assert len(deltas) > 2, "some of it was certain before the end"
        assert "".join(d.text for d in deltas) == completion.text == sample.text
        assert sum(completion.logprobs) / len(completion.token_ids) == pytest.approx(completion.score, abs=1e-5)
        assert sample.score == completion.score
    assert len({completion.text for completion in completions}) == 4
    assert told_paths(steps, stream.request)[-1] >= {tuple(completion.token_ids) for completion in completions}


def told_paths(steps: list[Step], request: int) -> list[set[tuple[int, ...]]]:
    """After each step the paths that the records tell of, in plain arithmetic."""
    at: dict[int, tuple[int, ...]] = {0: ()}
    ended: set[tuple[int, ...]] = set()
    found = []
    for step in steps:
        rows = step.beam_request == request
        if not rows.any():
            continue
        columns = step.beam_parent, step.beam_branch, step.beam_token, step.beam_fate
        before = dict(at)
        at = {}
        for parent, branch, token, fate in zip(*(column[rows].tolist() for column in columns), strict=True):
            path = (*before[parent], token)
            if fate == Fate.LIVE:
                at[branch] = path
            elif fate == Fate.FINISHED:
                ended.add(path)
        found.append(set(at.values()) | ended)
    return found


def test_beams_share_all_but_what_they_write(demo: Engine) -> None:
    """Eight beams over a long prompt take little more than one."""
    owned = []
    for width in (1, 8):
        trace = demo.begin(EngineConfig())
        params = SamplingParams(max_tokens=20, temperature=0, beam_width=width, ignore_eos=True)
        demo.submit([5] * 320, params).results(60)
        owned.append(max(trace.header.blocks - step.free_blocks for step in trace.steps))
        assert bool(sum(len(step.copied) for step in trace.steps)) == (width > 1)
    assert owned[0] == 22
    assert owned[1] <= owned[0] + 2 * 8


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"n": 2}, "leave n at 1"),
        ({"repetition_penalty": 1.2}, "model's own probabilities"),
        ({"beam_width": 65}, "from 1 to 64"),
        ({"length_penalty": 11.0}, "between -10 and 10"),
        ({"early_stopping": "soon"}, 'True, False or "never"'),
    ],
)
def test_what_beams_cannot_do_is_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        SamplingParams(**{"beam_width": 4, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "params", "told"),
    [
        (EngineConfig("static"), {}, "no blocks that beams could share"),
        (EngineConfig(max_running=3), {}, "raise max_running"),
        (EngineConfig(kv_memory=1 << 20), {"max_tokens": 150}, "may need"),
    ],
)
def test_a_search_that_cannot_run_is_refused_when_it_is_submitted(
    config: EngineConfig, params: dict[str, int], told: str, demo: Engine
) -> None:
    demo.begin(config)
    with pytest.raises(InvalidInput, match=told):
        demo.submit("The sun was", SamplingParams(beam_width=4, **params))
