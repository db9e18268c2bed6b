"""Checks of the sampling kernels that `test_interpreted.py` runs with TRITON_INTERPRET=1, in a process of their own."""

import os

import numpy as np
import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine import SamplingParams
from engine.kernels.jit import jit, tl
from engine.kernels.sampling import CHUNK, GROUP, uniform
from engine.runner.launched_step import apart
from engine.runner.sampling.noise import noise
from tests.engine.kernels.sampling_case import CPU, make_logits, make_pair, random_params

SAMPLED = SamplingParams()
LIMITED = [
    SamplingParams(top_k=5),
    SamplingParams(top_p=0.9),
    SamplingParams(min_p=0.05),
    SamplingParams(top_k=50, top_p=0.8, temperature=0.7),
    SamplingParams(top_k=20, top_p=0.9, min_p=0.1, repetition_penalty=1.3),
]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_rows_of_every_kind_get_the_tokens_of_the_cpus_sampler() -> None:
    params = random_params(16, 1)
    pair = make_pair(params, 2 * CHUNK + 123, CPU, tokens=[5, 9, 9, 31])
    tokens = pair.check(make_logits(len(params), 2 * CHUNK + 123, 2))
    assert len(set(tokens)) > len(tokens) // 2


@pytest.mark.parametrize("vocabulary", [1, GROUP - 1, GROUP + 1, CHUNK + 1])
def test_any_vocabulary_is_served(vocabulary: int) -> None:
    params = [SamplingParams(temperature=0), SAMPLED, *LIMITED[2:]]
    make_pair(params, vocabulary, CPU, tokens=[0]).check(make_logits(len(params), vocabulary, vocabulary))


def test_flat_and_peaked_distributions_get_the_tokens_of_the_cpus_sampler() -> None:
    params = [SAMPLED, *LIMITED[1:4]] * 2
    logits = make_logits(len(params), CHUNK + 7, 6)
    logits[:4] *= 0.01
    logits[4:] *= 7
    make_pair(params, CHUNK + 7, CPU, seed=4).check(logits)


def test_of_equal_logits_at_a_border_all_are_kept() -> None:
    params = random_params(8, 5)
    logits = make_logits(len(params), 1500, 7, spread=2).round()
    assert (logits == logits.amax(-1, keepdim=True)).sum() > len(params)
    make_pair(params, 1500, CPU).check(logits)


def test_zeros_of_either_sign_are_equal() -> None:
    logits = torch.zeros(3, 700)
    logits[:, ::2] = -0.0
    pair = make_pair([SamplingParams(temperature=0), SamplingParams(top_k=1), SamplingParams(top_p=0.1)], 700, CPU)
    assert pair.check(logits)[0] == 0


def test_tokens_that_are_ruled_out_are_never_drawn() -> None:
    params = [SAMPLED, SamplingParams(temperature=0), *LIMITED[:3]]
    vocabulary = 2 * CHUNK + 50
    logits = torch.full((len(params), vocabulary), -torch.inf)
    allowed = [7, GROUP, CHUNK + 77, vocabulary - 1]  # fewer than top-k asks for; a chunk may have none
    logits[:, allowed[:2]] = make_logits(len(params), 2, 1)
    logits[::2, allowed[2:]] = make_logits(len(params), 2, 3)[::2]
    assert set(make_pair(params, vocabulary, CPU).check(logits)) <= set(allowed)


def noises_of_seeds(count: int) -> np.ndarray:
    """Of the seeds that `make_pair` makes of the first numbers, at their first token."""
    return noise([seed * 0x9E3779B97F4A7C15 % 2**64 for seed in range(count)], [0] * count, [1] * count)


@pytest.mark.parametrize("last", [0.3, 1e-30])
def test_the_highest_noise_draws_the_last_token_that_has_a_weight(last: float) -> None:
    at = int(noises_of_seeds(20_000).argmax())
    logits = torch.full((1, CHUNK + 99), -torch.inf)
    logits[0, :3], logits[0, CHUNK + 5] = 1.0, 1.0 + torch.tensor(last).log()
    for params in (SAMPLED, SamplingParams(min_p=1e-35)):
        assert make_pair([params], CHUNK + 99, CPU, seed=at).check(logits) == [CHUNK + 5 if last > 0.1 else 2]


def test_float16_logits_are_drawn_from_as_they_are() -> None:
    params = [SamplingParams(temperature=0), SAMPLED, *LIMITED]
    logits = make_logits(len(params), CHUNK + 300, 9).half()
    make_pair(params, CHUNK + 300, CPU, tokens=[3, 4]).check(logits)


def test_rows_that_lie_apart_are_read_by_their_stride() -> None:
    params = [SamplingParams(temperature=0), SAMPLED, *LIMITED]
    make_pair(params, 900, CPU).check(make_logits(len(params), 1000, 3)[:, 50:950])


def test_the_first_of_equal_tokens_is_the_greedy_choice() -> None:
    logits = torch.zeros(4, 2 * CHUNK)
    for row, places in enumerate([[40, 41], [CHUNK - 1, CHUNK], [0, 2 * CHUNK - 1], []]):
        logits[row, places] = 1.0
    pair = make_pair([SamplingParams(temperature=0)] * 4, 2 * CHUNK, CPU)
    assert pair.check(logits) == [40, CHUNK - 1, 0, 0]


def test_a_temperature_close_to_zero_is_as_good_as_greedy() -> None:
    logits = make_logits(8, 1000, 1, spread=20)
    params = [SamplingParams(temperature=t, **more) for t in (1e-300, 1e-5) for more in ({}, {"top_p": 0.9})]
    params += [SamplingParams(temperature=1e-40, **more) for more in ({"top_k": 5}, {"min_p": 0.1})] * 2
    assert make_pair(params, 1000, CPU).check(logits) == logits.argmax(-1).tolist()


def test_a_row_has_the_same_bits_whatever_the_rows_beside_it_ask_for() -> None:
    params, vocabulary = random_params(6, 11), CHUNK + 500
    logits = make_logits(len(params), vocabulary, 12)
    together = make_pair(params, vocabulary, CPU).draw(logits)
    apart = make_pair(params, vocabulary, CPU)
    for i, branch in enumerate(apart.branches):
        alone = apart.draw(logits[i : i + 1], [branch])
        assert torch.equal(alone.tokens[0], together.tokens[i])
        assert torch.equal(alone.logprobs[0], together.logprobs[i])


def test_the_penalty_counts_the_prompt_and_what_was_drawn_since_and_a_slot_forgets() -> None:
    params = [SamplingParams(temperature=t, repetition_penalty=2.0, top_k=k) for t, k in ((0, 0), (1, 4))]
    pair = make_pair(params, 40, CPU, tokens=[4, 4, 7])
    logits = make_logits(2, 40, 13)
    for _ in range(3):
        drawn = pair.check(logits)
        for branch, token in zip(pair.branches, drawn, strict=True):
            branch.tokens.append(token)
    for branch in pair.branches:
        branch.tokens[:] = [1]
        pair.begin(branch)
    pair.check(logits)


def test_alternatives_are_of_the_models_own_distribution() -> None:
    params = [SamplingParams(temperature=0.2, top_k=3, repetition_penalty=2.0, logprobs=4), SamplingParams(logprobs=2)]
    for dtype in (torch.float32, torch.float16):
        make_pair(params, 500, CPU, tokens=[7]).check(make_logits(2, 500, 1).to(dtype))


def test_the_dummy_slot_draws_and_disturbs_nothing() -> None:
    pair = make_pair([SamplingParams(repetition_penalty=2.0)], 50, CPU)
    slots, positions = torch.tensor([1, 0, 1], dtype=torch.int32), torch.tensor([0, 1, 0], dtype=torch.int32)
    logits = make_logits(3, 50, 1)
    tokens, _ = apart(pair.sampler.draw(logits, slots, positions, pair.last_tokens), 3)
    assert tokens[::2].tolist() == logits[::2].argmax(-1).tolist()
    expected = pair.oracle(logits[1:2], pair.branches, [1]).tokens
    assert tokens[1] == expected == pair.last_tokens[0]


# Thresholds against a sort in float64: rows that ascend give the lowest kept token for the lowest noise.


LIMITS = [  # top-k, top-p, min-p
    (2, 1.0, 0.0),
    (300, 1.0, 0.0),
    (0, 0.9, 0.0),
    (0, 1.0, 0.2),
    (17, 0.7, 0.0),
    (200, 0.95, 0.01),
]


def lowest_kept(logits: torch.Tensor, params: SamplingParams) -> int:
    """The first of ascending logits that is kept."""
    weights = ((logits - logits[-1]).double() / params.temperature).exp()
    first = len(logits) - params.top_k if 0 < params.top_k < len(logits) else 0
    above = weights.flip(0).cumsum(0).flip(0) - weights
    nucleus = above < params.top_p * weights[first:].sum() if params.top_p < 1 else above >= 0
    kept = nucleus & (weights >= params.min_p) & (torch.arange(len(logits)) >= first)
    return int(kept.nonzero()[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
def test_the_lowest_noise_draws_the_lowest_token_that_a_sort_in_float64_keeps(dtype: torch.dtype) -> None:
    seed = int(noises_of_seeds(100_000).argmin())
    vocabulary = CHUNK + 1
    ascending = make_logits(1, vocabulary, 21, spread=2.5).sort(-1).values.to(dtype).float().unique()[None]
    vocabulary = ascending.shape[1]
    for top_k, top_p, min_p in LIMITS:
        params = SamplingParams(temperature=0.8, top_k=top_k, top_p=top_p, min_p=min_p)
        [token] = make_pair([params], vocabulary, CPU, seed=seed).draw(ascending.to(dtype)).tokens.tolist()
        weights = ((ascending[0] - ascending[0, -1]) / 0.8).exp()
        lowest = lowest_kept(ascending[0], params)
        assert weights[lowest] > 1e-4 * weights[lowest:].sum()
        assert token == lowest, params


@jit
def noise_kernel(out: tl.tensor, seeds: tl.tensor, branches: tl.tensor, positions: tl.tensor) -> None:
    i = tl.program_id(0)
    seed = tl.load(seeds + i).to(tl.uint64, bitcast=True)
    tl.store(out + i, uniform(seed, tl.load(branches + i), tl.load(positions + i)))


def test_the_noise_equals_the_cpus_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(1)
    seeds = torch.randint(-(2**63), 2**63 - 1, (300,), generator=generator)
    seeds[:3] = torch.tensor([0, -1, 2**63 - 1])
    branches = torch.randint(0, 100, (300,), generator=generator, dtype=torch.int32)
    positions = torch.randint(0, 2**31 - 1, (300,), generator=generator, dtype=torch.int32)
    out = torch.empty(300, dtype=torch.float64)
    noise_kernel[(300,)](out, seeds, branches, positions)
    assert out.tolist() == noise(seeds.tolist(), branches.tolist(), positions.tolist()).tolist()
