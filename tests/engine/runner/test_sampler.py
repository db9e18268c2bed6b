"""The sampler against transformers' logits processors, and the noise it draws with."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine import Engine, EngineConfig, SamplingParams, Submission, measure
from engine.config.specs import InvalidInput
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.decoding.output import Output
from engine.runner.sampling.drawing import CANDIDATES
from engine.runner.sampling.noise import noise
from engine.runner.sampling.sampler import Sampler
from engine.scheduler.request import Branch, Request
from tests.engine.conftest import SMALL
from tests.engine.decoding.tokenizer_kinds import tokenizer

CPU = torch.device("cpu")
DETOKENIZERS = DetokenizerFactory(tokenizer("demo"))


def branch(params: SamplingParams, tokens: list[int] | None = None, seed: int = 0, slot: int = 0) -> Branch:
    """A branch whose next token is being drawn."""
    request = Request(0, len(tokens or [1]), params, 100, seed)
    output = Output(DETOKENIZERS(), params, frozenset(), 100)
    made = Branch(request, tokens or [1], output, in_flight=1, slot=slot)
    request.branches.append(made)
    return made


def logits_of(vocabulary: int, seed: int, spread: float = 3.0) -> Tensor:
    return torch.randn(vocabulary, generator=torch.Generator().manual_seed(seed)) * spread


def reference(logits: Tensor, params: SamplingParams, tokens: list[int]) -> Tensor:
    """The probabilities that transformers would sample from."""
    processors = LogitsProcessorList()
    if params.repetition_penalty != 1:
        processors.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    processors.append(TemperatureLogitsWarper(float(params.temperature)))
    if params.top_k:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        processors.append(TopPLogitsWarper(params.top_p))
    if params.min_p:
        processors.append(MinPLogitsWarper(params.min_p))
    return processors(torch.tensor([tokens]), logits[None].clone())[0].softmax(-1)


def drawn(logits: Tensor, params: SamplingParams, tokens: list[int], uniforms: Tensor, monkeypatch: Any) -> Tensor:
    """The tokens that rows of the same logits give for these uniform numbers."""
    numbers = iter(uniforms.tolist())
    monkeypatch.setattr(
        "engine.runner.sampling.sampler.noise", lambda seeds, *_: np.array([next(numbers) for _ in seeds])
    )
    sampler = Sampler(1, logits.shape[-1], CPU)
    rows = [branch(params, tokens) for _ in uniforms]
    sampler.begin(rows[0])
    seen = None if sampler._seen is None else sampler._seen.clone()
    sampled = []
    for begin in range(0, len(rows), 256):
        part = rows[begin : begin + 256]
        sampled.append(sampler(logits.expand(len(part), -1), part, [len(b.tokens) for b in part]).tokens)
        if seen is not None:
            sampler._seen = seen.clone()
    return torch.cat(sampled)


CASES = {
    "temperature": {"temperature": 0.7},
    "hot": {"temperature": 2.5},
    "top-k": {"top_k": 7},
    "top-k of one": {"top_k": 1},
    "top-k past the vocabulary": {"top_k": 10_000},
    "top-p": {"top_p": 0.8},
    "top-p, narrow": {"top_p": 0.01},
    "min-p": {"min_p": 0.1},
    "min-p of one": {"min_p": 1.0},
    "repetition penalty": {"repetition_penalty": 1.7},
    "repetition reward": {"repetition_penalty": 0.6},
    "top-k, then top-p": {"top_k": 20, "top_p": 0.7, "temperature": 1.3},
    "top-p, then min-p": {"top_p": 0.9, "min_p": 0.05},
    "all": {"temperature": 0.9, "top_k": 30, "top_p": 0.85, "min_p": 0.02, "repetition_penalty": 1.3},
}


@pytest.mark.parametrize("vocabulary", [60, 2000])
@pytest.mark.parametrize("case", CASES)
def test_tokens_have_the_probabilities_of_transformers(
    case: str, vocabulary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evenly spaced numbers in place of noise: each token is drawn in proportion, to one part in their count."""
    params = SamplingParams(**CASES[case])
    logits, tokens = logits_of(vocabulary, 3), [5, 9, 9, 31]
    expected = reference(logits, params, tokens)
    count = 4096
    uniforms = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    found = torch.bincount(drawn(logits, params, tokens, uniforms, monkeypatch), minlength=vocabulary) / count
    torch.testing.assert_close(found, expected, atol=1.5 / count, rtol=0)
    assert not bool((found > 0)[expected == 0].any()), "a token that transformers drops is never drawn"


def test_top_p_over_a_flat_distribution_needs_more_than_the_usual_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = logits_of(4 * CANDIDATES + 100, 1, spread=0.1)
    params = SamplingParams(top_p=0.9)
    expected = reference(logits, params, [1])
    assert int((expected > 0).sum()) > CANDIDATES
    uniforms = (torch.arange(8192, dtype=torch.float64) + 0.5) / 8192
    found = torch.bincount(drawn(logits, params, [1], uniforms, monkeypatch), minlength=len(logits)) / 8192
    torch.testing.assert_close(found, expected, atol=2 / 8192, rtol=0)


@pytest.mark.parametrize("params", [{"top_k": 3}, {"top_p": 0.5}, {"top_k": 2, "top_p": 0.6}])
@pytest.mark.parametrize("vocabulary", [40, 4000])
def test_of_equal_tokens_at_the_border_all_are_kept(
    params: dict[str, Any], vocabulary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight equal tokens beside the highest: the third, and the one that passes the half, is among them."""
    logits = torch.full((vocabulary,), -1e4)
    logits[5:35:4], logits[20] = 0.0, math.log(3)
    uniforms = (torch.arange(1100, dtype=torch.float64) + 0.5) / 1100
    found = drawn(logits, SamplingParams(**params), [1], uniforms, monkeypatch)
    assert torch.bincount(found, minlength=vocabulary).unique().tolist() == [0, 100, 300]


@pytest.mark.parametrize("case", CASES)
def test_tokens_follow_the_noise_in_the_order_of_the_vocabulary(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every way to draw, on every device, gives the same token for the same noise."""
    uniforms = (torch.arange(300, dtype=torch.float64) + 0.5) / 300
    found = drawn(logits_of(3000, 8), SamplingParams(**CASES[case]), [5, 9], uniforms, monkeypatch)
    assert found.tolist() == sorted(found.tolist())


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    rows=st.lists(
        st.builds(
            SamplingParams,
            temperature=st.sampled_from([0, 0.3, 1.0, 1.8]),
            top_k=st.sampled_from([0, 1, 5, 200, 3000]),
            top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
            min_p=st.sampled_from([0.0, 0.02, 0.3]),
            repetition_penalty=st.sampled_from([1.0, 1.5]),
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_a_row_gets_the_same_token_whatever_its_batch_mates_ask_for(seed: int, rows: list[SamplingParams]) -> None:
    logits = torch.stack([logits_of(1000, seed + i) for i in range(len(rows))])
    mixed = Sampler(len(rows), 1000, CPU)
    branches = [branch(params, [3, 4, i], seed=seed + i, slot=i) for i, params in enumerate(rows)]
    for each in branches:
        mixed.begin(each)
    together = mixed(logits, branches, [3] * len(rows))
    for i, params in enumerate(rows):
        single = Sampler(1, 1000, CPU)
        lone = branch(params, [3, 4, i], seed=seed + i)
        single.begin(lone)
        alone = single(logits[i : i + 1], [lone], [3])
        assert int(alone.tokens) == int(together.tokens[i])
        torch.testing.assert_close(alone.logprobs[0], together.logprobs[i])
        if params.temperature:
            assert reference(logits[i], params, [3, 4, i])[int(alone.tokens)] > 0
        else:
            assert int(alone.tokens) == int(greedy(logits[i], params, [3, 4, i]))


def greedy(logits: Tensor, params: SamplingParams, tokens: list[int]) -> Tensor:
    """Greedy choice sees the repetition penalty and nothing else."""
    penalized = RepetitionPenaltyLogitsProcessor(params.repetition_penalty)(
        torch.tensor([tokens]), logits[None].clone()
    )
    return penalized[0].argmax()


def test_the_penalty_counts_the_prompt_and_what_was_drawn_since() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0, 4.0]])
    sampler, one = Sampler(1, 5, CPU), branch(SamplingParams(temperature=0, repetition_penalty=100.0), [4])
    sampler.begin(one)
    assert [int(sampler(logits, [one], [len(one.tokens)]).tokens) for _ in range(4)] == [3, 2, 1, 4]


def test_a_slot_forgets_what_the_request_before_it_has_seen() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    params = SamplingParams(temperature=0, repetition_penalty=100.0)
    sampler = Sampler(1, 3, CPU)
    sampler.begin(branch(params, [2]))
    next_one = branch(params, [0])
    sampler.begin(next_one)
    assert int(sampler(logits, [next_one], [len(next_one.tokens)]).tokens) == 2


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-30, 1e-5])
@pytest.mark.parametrize("more", [{}, {"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}])
def test_a_temperature_close_to_zero_is_as_good_as_greedy(temperature: float, more: dict[str, Any]) -> None:
    logits = torch.stack([logits_of(1000, i, spread=20) for i in range(8)])
    rows = [branch(SamplingParams(temperature=temperature, **more), seed=i) for i in range(8)]
    assert Sampler(1, 1000, CPU)(logits, rows, [1] * 8).tokens.tolist() == logits.argmax(-1).tolist()


def test_logprobs_and_alternatives_are_of_the_models_own_distribution() -> None:
    logits = torch.stack([logits_of(500, 1), logits_of(500, 2)])
    rows = [
        branch(SamplingParams(temperature=0.2, top_k=3, repetition_penalty=2.0, logprobs=4), [7], slot=0),
        branch(SamplingParams(temperature=0, logprobs=2), [7], slot=1),
    ]
    sampler = Sampler(2, 500, CPU)
    for row in rows:
        sampler.begin(row)
    sampled = sampler(logits, rows, [len(row.tokens) for row in rows])
    expected = logits.log_softmax(-1)
    torch.testing.assert_close(sampled.logprobs, expected.gather(-1, sampled.tokens[:, None])[:, 0])
    values, ids = expected.topk(4, -1)
    assert sampled.alternatives is not None
    assert sampled.alternatives.tolist() == ids.tolist()
    torch.testing.assert_close(sampled.alternative_logprobs, values)


# Noise.


def in_whole_numbers(seed: int, branch: int, position: int) -> float:
    """Three rounds of the SplitMix64 finalizer, as its paper has it."""
    most, state = (1 << 64) - 1, seed & (1 << 64) - 1
    for word in (0x9E3779B97F4A7C15, branch + 1, position + 1):
        state = (state + word * 0x9E3779B97F4A7C15) & most
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & most
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & most
        state ^= state >> 31
    return ((state >> 11) + 0.5) / (1 << 53)


@given(st.integers(0, 2**70), st.integers(0, 100), st.integers(0, 10**7))
@example(0, 0, 0)
def test_noise_is_a_number_between_zero_and_one_and_a_function_of_its_key(seed: int, branch: int, at: int) -> None:
    value, beside = noise([seed, 3], [branch, 1], [at, 2]).tolist()
    assert 0 < value < 1
    assert [value] == noise([seed], [branch], [at]).tolist()
    assert value == in_whole_numbers(seed, branch, at)
    assert beside == in_whole_numbers(3, 1, 2)


def test_noise_is_uniform_and_its_neighbours_are_independent() -> None:
    keys = [(seed, 0, at) for seed in range(100) for at in range(200)]
    values = torch.from_numpy(noise(*zip(*keys))).view(100, 200)
    counts = torch.histc(values.flatten(), 50, 0, 1)
    expected = values.numel() / 50
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert chi_squared < 49 + 4 * math.sqrt(2 * 49), "50 bins: within four standard deviations"
    for a, b in ((values[:, :-1], values[:, 1:]), (values[:-1], values[1:])):
        correlation = float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])
        assert abs(correlation) < 4 / math.sqrt(a.numel())


# Through the engine.

STORY: list[Any] = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]
WARM = SamplingParams(max_tokens=40, temperature=1.0, top_p=0.95, seed=11, ignore_eos=True)


def say(engine: Engine, config: EngineConfig, submissions: list[Submission]) -> list[tuple[int, ...]]:
    engine.begin(config)
    return [s.result(timeout=60).token_ids for s in engine.submit_many(submissions)]


def test_a_seed_gives_the_same_tokens_alone_in_company_preempted_and_at_any_depth(demo: Engine) -> None:
    [alone] = say(demo, SMALL, [Submission(STORY, WARM)])
    others = [Submission(STORY, WARM.with_(seed=None, temperature=2.0, repetition_penalty=1.2)) for _ in range(5)]
    memory = 20 * 16 * demo.card.kv_token_bytes
    for depth in (0, 1):
        for kv_memory in (None, memory):
            config = EngineConfig(max_running=6, token_budget=64, kv_memory=kv_memory, depth=depth)
            said = say(demo, config, [*others, Submission(STORY, WARM)])
            assert said[-1] == alone
            assert (measure(demo.trace).preemptions > 0) == (kv_memory is not None)


def test_two_seeds_give_two_stories_and_no_seed_gives_each_request_its_own(demo: Engine) -> None:
    unseeded = [Submission(STORY, WARM.with_(seed=None)) for _ in range(3)]
    seeded = [Submission(STORY, WARM), Submission(STORY, WARM.with_(seed=12))]
    first = say(demo, SMALL, [*unseeded, *seeded])
    assert len(set(first)) == 5
    assert say(demo, SMALL, [*unseeded, *seeded]) == first, "the same run again says the same"
    other = EngineConfig(max_running=16, token_budget=512, seed=1)
    again = say(demo, other, [*unseeded, *seeded])
    assert again[3:] == first[3:]
    assert not set(again[:3]) & set(first[:3])


def test_alternatives_reach_the_trace_for_the_rows_that_asked(demo: Engine) -> None:
    demo.begin(SMALL)
    asks = demo.submit(STORY, SamplingParams(max_tokens=5, temperature=0, logprobs=3))
    silent = demo.submit(STORY, SamplingParams(max_tokens=5, temperature=0))
    completion = asks.result(timeout=30)
    assert silent.result(timeout=30).token_ids == completion.token_ids
    found: list[list[int]] = []
    for step in demo.trace.steps:
        for i, row in enumerate(step.token_row.tolist()):
            alternatives = step.alt_token[step.alt_token_index == i].tolist()
            values = step.alt_logprob[step.alt_token_index == i].tolist()
            if int(step.request[row]) == asks.request:
                found.append(alternatives)
                assert values == sorted(values, reverse=True)
                assert values[0] == pytest.approx(float(step.logprob[i]), abs=1e-5)
            else:
                assert alternatives == []
    assert [each[0] for each in found] == list(completion.token_ids)
    assert all(len(each) == 3 for each in found)


def test_sampling_values_out_of_range_are_refused_by_name() -> None:
    for values, name in (
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 2.5}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": -1}, "seed"),
        ({"logprobs": 21}, "logprobs"),
        ({"n": 0}, "n"),
        ({"beam_width": 65}, "beam_width"),
        ({"stop": ("",)}, "stop"),
        ({"stop": 3}, "stop"),
        ({"stop": None}, "stop"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": True}, "max_tokens"),
    ):
        with pytest.raises(InvalidInput, match=rf"^{name}="):
            SamplingParams(**values)  # type: ignore[arg-type]
