"""The oracle is itself checked, against torch and by hand."""

import math

import torch

from engine.kernels.attention.options import Options
from tests.engine.kernels import oracle


def test_a_single_prefill_row_equals_torch_sdpa() -> None:
    random = torch.Generator().manual_seed(0)
    tokens, heads, kv_heads, head_dim, block_size = 37, 6, 2, 32, 16
    q = torch.randn(tokens, heads, head_dim, generator=random, dtype=torch.float64)
    k, v = torch.randn(2, tokens, kv_heads, head_dim, generator=random, dtype=torch.float64)
    k_cache, v_cache = torch.full((2, 4, block_size, kv_heads, head_dim), torch.nan, dtype=torch.float64)
    table = torch.tensor([[2, 0, 3, -1]], dtype=torch.int32)
    positions = torch.arange(tokens)
    slots = table[0, positions // block_size].long() * block_size + positions % block_size
    oracle.store_kv(k, v, k_cache, v_cache, slots)
    out = oracle.paged_attention(
        q, k_cache, v_cache, table, torch.tensor([0, tokens]).int(), torch.tensor([tokens]).int(), Options(0.25)
    )

    expected = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), is_causal=True, scale=0.25, enable_gqa=True
    ).transpose(0, 1)
    torch.testing.assert_close(out, expected)


def test_a_decode_row_equals_the_last_token_of_its_prefill() -> None:
    random = torch.Generator().manual_seed(1)
    q = torch.randn(20, 2, 32, generator=random, dtype=torch.float64)
    cache = torch.randn(2, 2, 16, 1, 32, generator=random, dtype=torch.float64)
    table, context = torch.tensor([[1, 0]]).int(), torch.tensor([20]).int()
    whole = oracle.paged_attention(q, *cache, table, torch.tensor([0, 20]).int(), context, Options(1.0))
    last = oracle.paged_attention(q[-1:], *cache, table, torch.tensor([0, 1]).int(), context, Options(1.0))
    torch.testing.assert_close(last, whole[-1:])


def test_a_window_of_two_sees_the_token_itself_and_the_one_before() -> None:
    # Equal scores make each output the plain mean of what is seen; the values are powers of two.
    q = torch.zeros(4, 1, 1)
    k_cache = torch.zeros(1, 4, 1, 1)
    v_cache = torch.tensor([1.0, 2.0, 4.0, 8.0]).view(1, 4, 1, 1)
    arguments = (q, k_cache, v_cache, torch.tensor([[0]]).int(), torch.tensor([0, 4]).int(), torch.tensor([4]).int())
    out = oracle.paged_attention(*arguments, Options(1.0, window=2))
    assert out.flatten().tolist() == [1.0, 1.5, 3.0, 6.0]


def test_a_sink_takes_its_share_of_the_weight_and_adds_no_value() -> None:
    q, cache = torch.zeros(1, 1, 1), torch.ones(1, 16, 1, 1)
    arguments = (q, cache, cache, torch.tensor([[0]]).int(), torch.tensor([0, 1]).int(), torch.tensor([2]).int())
    out = oracle.paged_attention(*arguments, Options(1.0, sinks=torch.tensor([math.log(2.0)])))
    assert math.isclose(out.item(), 2 / (1 + 1 + 2), rel_tol=1e-6)


def test_a_softcap_bounds_the_scores_after_the_scale() -> None:
    q = torch.full((1, 1, 1), 1000.0)
    k_cache = torch.tensor([1.0, -1.0]).view(1, 2, 1, 1)
    v_cache = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1)
    arguments = (q, k_cache, v_cache, torch.tensor([[0]]).int(), torch.tensor([0, 1]).int(), torch.tensor([2]).int())
    out = oracle.paged_attention(*arguments, Options(0.5, softcap=1.0))
    assert math.isclose(out.item(), 1 / (1 + math.exp(-2.0)), rel_tol=1e-6)


def test_a_negative_slot_stores_nothing() -> None:
    cache = torch.zeros(2, 16, 1, 4)
    oracle.store_kv(torch.ones(2, 1, 4), torch.ones(2, 1, 4), cache, cache.clone(), torch.tensor([-1, 17]))
    assert cache.sum() == cache[1, 1].sum() == 4
