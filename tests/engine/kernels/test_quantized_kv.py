"""The formats of a quantized cache, and the CPU's kernels over it."""

from itertools import chain

import pytest
import torch

from engine.kernels.attention.options import Options
from engine.kernels.cpu import calls, quantized
from engine.kernels.cpu.library import find_compiler
from engine.kernels.quantized_kv import CODES, MOST, dequantize, quantize, rounded, scale_values
from tests.engine.kernels import oracle

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
KINDS, DTYPES = list(CODES.values()), {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def values(tokens: int, kv_heads: int, head_dim: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Of sizes from none over tiny to huge."""
    random = torch.Generator().manual_seed(seed)
    sizes = torch.logspace(-9, 5, tokens)[torch.randperm(tokens, generator=random)]
    x = torch.randn(tokens, kv_heads, head_dim, generator=random) * sizes[:, None, None]
    x[0] = 0
    return x.to(dtype)


@pytest.mark.parametrize("codes", KINDS)
def test_values_are_within_half_a_step_and_none_beyond_the_largest_code(codes: torch.dtype) -> None:
    x = values(400, 2, 64, torch.float32)
    held, scales = quantize(x, codes)
    step, found = scale_values(scales)[..., None], dequantize(held, scales, torch.float32)
    peak = x.abs().amax(-1, keepdim=True)
    assert (step * MOST[codes] >= peak * (1 - 1e-6)).all()
    coarse = (step * MOST[codes] > peak * 1.126) & (step > 2**-20)
    assert not coarse.any()
    half = step / 2 if codes is torch.int8 else torch.maximum(x.abs() / 16, step / 1024)
    assert ((found - x).abs() <= half * (1 + 1e-5)).all()
    assert held.dtype is codes


def test_a_scale_is_one_of_256_in_order() -> None:
    scales = scale_values(torch.arange(256, dtype=torch.uint8))
    assert scales[0] == 2**-20
    assert scales[-1] == 3840
    assert (scales.diff() > 0).all()


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("codes", KINDS)
@pytest.mark.parametrize(("head_dim", "block"), [(64, 16), (80, 32), (16, 48), (128, 64)])
def test_compiled_and_torch_write_the_same_bytes(
    dtype: torch.dtype, codes: torch.dtype, head_dim: int, block: int
) -> None:
    k, v = values(90, 3, head_dim, dtype), values(90, 3, head_dim, dtype, 1)
    at = torch.randperm(20 * block, generator=torch.Generator().manual_seed(2))[:90]
    written = []
    for compiled in (True, False):
        caches = [quantized.allocate(20, block, 3, head_dim, codes) for _ in range(2)]
        if compiled:
            calls.store_kv(k, v, *caches, (at // block).int(), (at % block).int())
        else:
            quantized.store(k, v, *caches, (at // block, at % block))
        written.append(caches)
    for one, other in zip(*written):
        assert torch.equal(one, other)
    read = quantized.readable(*written[0], torch.float32)
    for cache, given in zip(read, (k, v)):
        assert torch.equal(cache[at // block, at % block], rounded(given.float(), codes))


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("codes", KINDS)
@pytest.mark.parametrize(
    ("group", "head_dim", "block", "options"),
    [
        (1, 64, 16, Options(0.125)),
        (3, 80, 32, Options(0.3, window=7, softcap=4.0)),
        (7, 16, 16, Options(0.4, window=300)),
        (8, 128, 64, Options(0.2, sinks=torch.linspace(-2, 3, 16))),
    ],
)
def test_attention_over_codes_equals_the_oracle_over_what_they_stand_for(
    dtype: torch.dtype, codes: torch.dtype, group: int, head_dim: int, block: int, options: Options
) -> None:
    """Prompts, decode rows, long contexts; each token alone gives the same bits."""
    kv_heads, random = 2, torch.Generator().manual_seed(group)
    firsts, counts = [0, 699, 255, 3, 512], [40, 1, 1, 6, 9]
    lengths = [first + count for first, count in zip(firsts, counts)]
    free = torch.randperm(110, generator=random).tolist()
    tables = [[free.pop() for _ in range(-(-length // block))] for length in lengths]
    caches = [quantized.allocate(110, block, kv_heads, head_dim, codes) for _ in range(2)]
    tokens = 110 * block
    k, v = (torch.randn(tokens, kv_heads, head_dim, generator=random) for _ in range(2))
    at = torch.arange(tokens)
    quantized.store(k, v, *caches, (at // block, at % block))
    q = torch.randn(sum(counts), kv_heads * group, head_dim, generator=random).to(dtype)
    out = calls.plan_decode(tables, firsts, counts).attend(q, *caches, options)
    widest = max(map(len, tables))
    block_tables = torch.tensor([table + [-1] * (widest - len(table)) for table in tables], dtype=torch.int32)
    metadata = block_tables, torch.tensor([0, *counts]).cumsum(0), torch.tensor(lengths)
    expected = oracle.paged_attention(q.double(), *quantized.readable(*caches, torch.float64), *metadata, options)
    torch.testing.assert_close(out.double(), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])
    owners = list(chain.from_iterable([row] * count for row, count in enumerate(counts)))
    positions = [first + i for first, count in zip(firsts, counts) for i in range(count)]
    for row, position, query, answer in list(zip(owners, positions, q, out))[::-5]:
        alone = calls.plan_decode([tables[row]], [position], [1]).attend(query[None], *caches, options)
        assert torch.equal(alone[0], answer)
