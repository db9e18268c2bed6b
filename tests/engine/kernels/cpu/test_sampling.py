"""The compiled kernels that draw tokens and hold them to grammars do what numpy does in float64."""

import math

import numpy as np
import pytest
import torch

from engine.kernels.cpu import calls, library, sampling

pytestmark = pytest.mark.skipif(library.find_compiler() is None, reason="no C compiler")
DTYPES = [torch.float32, torch.bfloat16]
VOCABULARIES = [7, 48, 1003, 9000]  # less than a vector, whole ones, a rest, blocks of several vectors


def logits_of(rows: int, vocabulary: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(vocabulary)) * 3).to(dtype)


def some_bits(rows: int, vocabulary: int) -> tuple[sampling.Bits, np.ndarray]:
    """Half of the tokens in the first row, one in the second, the last alone in the third, none in the fourth; and as
    booleans. The words of a row lie among others, as where a tokenizer has more tokens than its model."""
    random = np.random.default_rng(rows)
    allowed = random.random((rows, vocabulary)) < 0.5
    allowed[1] = np.arange(vocabulary) == vocabulary // 2
    allowed[2] = np.arange(vocabulary) == vocabulary - 1
    allowed[3] = False
    words = -(-vocabulary // 32)
    packed = np.packbits(np.pad(allowed, ((0, 0), (0, words * 32 - vocabulary))), axis=1, bitorder="little")
    bits = np.full((rows, words + 2), -1, np.int32)
    bits[:, :words] = packed.view(np.int32)
    return bits[:, :words], allowed


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_what_is_not_allowed_is_ruled_out_but_of_a_row_that_has_given_up(vocabulary: int) -> None:
    bits, allowed = some_bits(6, vocabulary)
    logits = logits_of(6, vocabulary, torch.float32)
    out = sampling.rule_out(logits, bits)
    allowed[3] = True
    assert torch.equal(out, logits.masked_fill(~torch.from_numpy(allowed), -torch.inf))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_greedy_choices_that_are_ruled_out_are_made_again(vocabulary: int, dtype: torch.dtype) -> None:
    rows = [9, 0, 4, 2, 7, 5]  # some of ten, in any order
    bits, allowed = some_bits(len(rows), vocabulary)
    logits = logits_of(10, vocabulary, dtype)
    logits[7] = 1.5  # of equals the first
    tokens, logprobs = calls.greedy(logits)
    before, before_logprobs = tokens.clone(), logprobs.clone()
    for choose in (False, True):
        likeliest, theirs, refused = sampling.among_allowed(tokens, logprobs, logits, rows, bits, choose)
        assert torch.equal(likeliest, before[rows])
        assert torch.equal(theirs, before_logprobs[rows])
        assert refused.tolist() == [not of_row[top] for of_row, top in zip(allowed, before[rows].tolist())]
        if not choose:
            assert torch.equal(tokens, before)
    allowed[3] = True
    wanted = before.clone()
    masked = logits[rows].float().masked_fill(~torch.from_numpy(allowed), -torch.inf)
    wanted[rows] = torch.from_numpy(masked.numpy().argmax(-1))
    assert torch.equal(tokens, wanted)
    expected = logits.float().log_softmax(-1).gather(-1, wanted[:, None])[:, 0]
    torch.testing.assert_close(logprobs, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_tokens_are_those_at_which_the_running_sum_passes_the_noise(vocabulary: int, dtype: torch.dtype) -> None:
    count = 200
    random = np.random.default_rng(vocabulary)
    logits = logits_of(count, vocabulary, dtype)
    held = list(range(3, count, 2))
    bits, allowed = some_bits(len(held), vocabulary)
    may = np.ones((count, vocabulary), bool)
    may[held] = allowed
    may[held[3]] = True  # has given up
    temperatures, noises = random.uniform(0.3, 2, count).astype(np.float32), random.random(count)
    floors = np.where(random.random(count) < 0.5, 0, random.uniform(0, 0.3, count)).astype(np.float32)
    tokens = sampling.draw(logits, temperatures.tolist(), floors.tolist(), noises, held, bits).numpy()
    x = np.where(may, logits.double().numpy(), -math.inf)
    weights = np.exp((x - x.max(1, keepdims=True)) / temperatures[:, None])
    weights[weights < floors[:, None]] = 0
    running = weights.cumsum(1)
    mark = noises * running[:, -1]
    at = np.arange(count)
    assert (weights[at, tokens] > 0).all()
    slack = 1e-6 * running[:, -1]
    assert (running[at, tokens] > mark - slack).all()
    assert (running[at, tokens] - weights[at, tokens] <= mark + slack).all()
    assert len(set(tokens.tolist())) > min(vocabulary, 60) / 2


def test_the_least_and_the_most_noise_draw_the_first_and_the_last_that_weigh_something() -> None:
    logits = torch.full((2, 5000), -torch.inf)
    logits[:, 33], logits[:, 4567], logits[:, 4600] = 0.5, 1.0, -200.0  # the last weighs too little
    noises = np.array([2.0**-54, 1 - 2.0**-53])
    assert sampling.draw(logits, [1.0, 1.0], [0.0, 0.0], noises).tolist() == [33, 4567]


def test_what_is_no_number_is_drawn_from_without_harm() -> None:
    logits = torch.full((3, 100), torch.nan)
    logits[1, :50], logits[2] = torch.inf, -torch.inf
    tokens = sampling.draw(logits, [1.0] * 3, [0.0] * 3, np.full(3, 0.5))
    assert 0 <= int(tokens.min()) <= int(tokens.max()) < 100
