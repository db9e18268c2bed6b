"""The sampling kernels on the GPU that is here: the CPU's tokens, without a wait of the host."""

import pytest
import torch

from engine import SamplingParams
from engine.kernels.sampling import CHUNK
from engine.runner.sampling.noise import noise
from tests.engine.kernels.sampling_case import make_logits, make_pair, positions_of, random_params

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

CUDA = torch.device("cuda")
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])


@DTYPES
@pytest.mark.parametrize("vocabulary", [1, 31, CHUNK + 1, 50257, 151936])
def test_rows_of_every_kind_get_the_tokens_of_the_cpus_sampler(vocabulary: int, dtype: torch.dtype) -> None:
    """But for a draw in a thousand: a mark so close to a border that rounding decides."""
    differ, rows = 0, 100
    for seed in range(5):
        pair = make_pair(random_params(rows, seed), vocabulary, CUDA, tokens=[0], seed=seed)
        logits = make_logits(rows, vocabulary, seed, spread=2 + seed).to(dtype)
        found = pair.draw(logits)
        expected = pair.oracle(logits, pair.branches, positions_of(pair.branches))
        same = found.tokens.cpu() == expected.tokens
        differ += int((~same).sum())
        torch.testing.assert_close(found.logprobs.cpu()[same], expected.logprobs[same], atol=1e-4, rtol=1e-4)
    assert differ <= 5 * rows // 250


def test_equal_logits_and_tokens_ruled_out_are_drawn_as_on_the_cpu() -> None:
    params = random_params(60, 3)
    logits = make_logits(60, 2 * CHUNK + 9, 4).round()
    logits[:, 5 : CHUNK + 70] = -torch.inf
    make_pair(params, 2 * CHUNK + 9, CUDA).check(logits)


def test_the_noise_of_a_key_is_that_of_the_cpu() -> None:
    """Over equal weights the token is the noise's share of the vocabulary."""
    vocabulary, rows = 1 << 17, 200
    pair = make_pair([SamplingParams()] * rows, vocabulary, CUDA, tokens=[1, 2, 3])
    tokens = pair.draw(torch.zeros(rows, vocabulary)).tokens.tolist()
    keys = zip(*((b.request.seed, b.index, 3) for b in pair.branches))
    expected = (noise(*keys) * vocabulary).astype(int).tolist()
    assert tokens == expected


def test_a_row_has_the_same_bits_whatever_the_rows_beside_it_ask_for() -> None:
    params, vocabulary = random_params(40, 11), 50257
    logits = make_logits(len(params), vocabulary, 12).bfloat16()
    together, apart = make_pair(params, vocabulary, CUDA).draw(logits), make_pair(params, vocabulary, CUDA)
    for i, branch in enumerate(apart.branches):
        alone = apart.draw(logits[i : i + 1].clone(), [branch])
        assert torch.equal(alone.tokens[0], together.tokens[i])
        assert torch.equal(alone.logprobs[0], together.logprobs[i])


def test_the_penalty_counts_the_prompt_and_what_was_drawn_since() -> None:
    params = [SamplingParams(temperature=t, repetition_penalty=2.0, top_k=k) for t, k in ((0, 0), (1, 0), (1, 4))]
    pair = make_pair(params, 40, CUDA, tokens=[4, 4, 7])
    for _ in range(6):
        drawn = pair.check(make_logits(3, 40, 13))
        for branch, token in zip(pair.branches, drawn, strict=True):
            branch.tokens.append(token)


def test_the_host_never_waits_for_the_device() -> None:
    params = [*random_params(20, 7), SamplingParams(top_k=3, logprobs=5), SamplingParams(repetition_penalty=1.2)]
    pair = make_pair(params, 32000, CUDA)
    logits = make_logits(len(params), 32000, 1).to(CUDA)
    slots = torch.tensor([b.slot for b in pair.branches], dtype=torch.int32, device=CUDA)
    positions = torch.ones_like(slots)
    pair.sampler(logits, slots, positions, pair.branches, pair.last_tokens)  # compiled before
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        pair.sampler(logits, slots, positions, pair.branches, pair.last_tokens)
        for branch in pair.branches:
            pair.sampler.begin(branch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
