"""The Triton kernels agree with the float64 oracle on the GPU that is here."""

import pytest
import torch

from engine.kernels import reference
from engine.kernels.paged_attention import paged_attention
from engine.kernels.store_kv import store_kv
from tests.engine.kernels.paged_case import Shape, make_case, make_store, random_shape

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])


@DTYPES
def test_attention_agrees_with_the_oracle_on_random_shapes(dtype: torch.dtype) -> None:
    fresh = torch.seed()
    for seed in range(fresh, fresh + 40):
        shape = random_shape(seed, dtype, most_rows=9, longest=700)
        try:
            make_case(shape, seed, "cuda").check(paged_attention)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {shape}") from error


@DTYPES
@pytest.mark.parametrize("head_dim", [64, 128])
def test_a_mixed_step_of_a_real_models_size_agrees_with_the_oracle(dtype: torch.dtype, head_dim: int) -> None:
    rows = ((1, 3000), (1, 17), (500, 500), (0, 5), (300, 2000), (5, 1000), (1, 1))
    shape = Shape(rows, kv_heads=8, group=4, head_dim=head_dim, dtype=dtype)
    make_case(shape, torch.seed() % 2**32, "cuda").check(paged_attention)


@DTYPES
def test_a_decode_step_of_many_rows_agrees_with_the_oracle(dtype: torch.dtype) -> None:
    rows = tuple((1, 1 + 13 * row) for row in range(130))
    shape = Shape(rows, kv_heads=2, group=7, head_dim=128, sliding_window=200, sinks=True, dtype=dtype)
    make_case(shape, torch.seed() % 2**32, "cuda").check(paged_attention)


@DTYPES
def test_stored_keys_and_values_equal_the_oracles_bit_for_bit(dtype: torch.dtype) -> None:
    for seed in range(30):
        make_store(seed, "cuda", dtype).check(store_kv)


def test_slots_beyond_two_to_the_31_elements_are_reached() -> None:
    block_size, kv_heads, head_dim = 16, 8, 128
    blocks = 2**31 // (block_size * kv_heads * head_dim) + 8
    if torch.cuda.mem_get_info()[0] < 6 * 2**30:
        pytest.skip("needs 6 GB of free GPU memory")
    cache = torch.empty(blocks, block_size, kv_heads, head_dim, dtype=torch.bfloat16, device="cuda")
    k = torch.randn(20, kv_heads, head_dim, device="cuda").bfloat16()
    last = (blocks - 2) * block_size
    store_kv(k, k, cache, cache, torch.arange(last, last + 20, device="cuda"))
    assert torch.equal(cache.view(-1, kv_heads, head_dim)[last : last + 20], k)

    q = torch.randn(3, kv_heads, head_dim, device="cuda").bfloat16()
    table = torch.tensor([[blocks - 2, blocks - 1]], dtype=torch.int32, device="cuda")
    starts = torch.tensor([0, 3], dtype=torch.int32, device="cuda")
    contexts = torch.tensor([20], dtype=torch.int32, device="cuda")
    out = paged_attention(q, cache, cache, table, starts, contexts, scale=0.1)
    expected = reference.paged_attention(q.double(), cache, cache, table, starts, contexts, scale=0.1)
    torch.testing.assert_close(out.double(), expected, rtol=1.6e-2, atol=1.6e-2)


def test_a_launch_can_be_captured_and_replayed_with_new_lengths() -> None:
    case = make_case(Shape(((1, 40), (1, 64), (1, 9)), dtype=torch.bfloat16), 5, "cuda")
    q, k_cache, v_cache, block_tables, query_starts, context_lengths = case.arguments
    out = torch.full_like(q, torch.nan)
    case.check(paged_attention)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        paged_attention(*case.arguments, **case.options, out=out)
    context_lengths.sub_(5)
    graph.replay()
    expected = reference.paged_attention(q.double(), *case.arguments[1:], **case.options)
    torch.testing.assert_close(out.double(), expected, rtol=1.6e-2, atol=1.6e-2)
