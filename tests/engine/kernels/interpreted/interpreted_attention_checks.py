"""Checks that `test_interpreted.py` runs with TRITON_INTERPRET=1, in a process of their own.

float32 and float16 only: the interpreter's product of bfloat16 tiles is wrong (Triton 3.9).
"""

import os
from dataclasses import replace

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.kernels.attention.options import Options
from engine.kernels.attention.packed_rows import PackedRows
from engine.kernels.attention.paged_attention import paged_attention
from engine.kernels.store_kv import store_kv
from tests.engine.kernels.paged_case import Shape, make_case, make_store, random_shape

MIXED = ((1, 40), (0, 12), (35, 35), (1, 1), (9, 61), (1, 16))  # decode, idle, prefill, first token, chunk, full block


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("seed", range(12))
def test_float32_agrees_with_the_oracle_on_random_shapes(seed: int) -> None:
    make_case(random_shape(seed, torch.float32), seed).check(paged_attention)


@pytest.mark.parametrize("seed", range(100, 110))
def test_float16_agrees_with_the_oracle_on_random_shapes(seed: int) -> None:
    make_case(random_shape(seed, torch.float16), seed).check(paged_attention)


@pytest.mark.parametrize("head_dim", [32, 80, 96, 256, 512])
def test_every_head_dim_is_served(head_dim: int) -> None:
    make_case(Shape(MIXED, kv_heads=1, head_dim=head_dim, dtype=torch.float16), head_dim).check(paged_attention)


@pytest.mark.parametrize("group", range(1, 9))
def test_every_group_of_query_heads_is_served(group: int) -> None:
    make_case(Shape(MIXED, kv_heads=1, group=group, dtype=torch.float16), group).check(paged_attention)


@pytest.mark.parametrize("block_size", [16, 32, 64])
@pytest.mark.parametrize("heads_first", [False, True])
def test_every_block_size_is_served_in_either_layout(block_size: int, heads_first: bool) -> None:
    shape = Shape(MIXED, kv_heads=2, block_size=block_size, dtype=torch.float16, heads_first=heads_first)
    make_case(shape, block_size).check(paged_attention)


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 64, 65])
def test_a_window_sees_neither_a_key_too_many_nor_one_too_few(window: int) -> None:
    shape = Shape(((1, 130), (70, 130), (1, window), (1, window + 1)), kv_heads=1, sliding_window=window)
    make_case(shape, window).check(paged_attention)


def test_a_group_larger_than_a_tile_is_served() -> None:
    make_case(Shape(((1, 30), (3, 20)), kv_heads=1, group=20, head_dim=32), 0).check(paged_attention)


@pytest.mark.parametrize(("group", "head_dim"), [(4, 48), (48, 96), (32, 576)])
def test_a_latent_is_keys_and_values_of_heads_that_programs_share(group: int, head_dim: int) -> None:
    rows = MIXED if head_dim < 500 else ((1, 40), (5, 20))
    shape = Shape(rows, kv_heads=1, group=group, head_dim=head_dim, dtype=torch.float16, latent=True)
    make_case(shape, group).check(paged_attention)


def test_scores_too_large_for_an_exponential_overflow_nothing() -> None:
    case = make_case(Shape(((1, 30), (20, 20)), softcap=50.0, sinks=True), 0)
    case.q.mul_(1000)
    case.check(paged_attention)


def test_all_rows_idle_leave_the_output_as_it_was() -> None:
    q, cache = torch.zeros(4, 2, 32), torch.full((1, 16, 1, 32), torch.nan)
    out = torch.full_like(q, 7.0)
    for short in (0, 3):
        idle = PackedRows(torch.zeros(4).int(), torch.zeros(3).int(), torch.full((3, 2), -1).int(), short=short)
        paged_attention(q, cache, cache, idle, Options(1.0), out=out)
    assert (out == 7.0).all()


def test_no_tokens_need_no_launch() -> None:
    q, cache = torch.zeros(0, 2, 32), torch.zeros(1, 16, 1, 32)
    idle = PackedRows(torch.zeros(2).int(), torch.zeros(1).int(), torch.full((1, 2), -1).int())
    assert paged_attention(q, cache, cache, idle, Options(1.0)).shape == (0, 2, 32)
    store_kv(q, q, cache, cache, torch.zeros(0, dtype=torch.int64))


def test_a_query_laid_out_heads_first_is_read_by_its_strides() -> None:
    case = make_case(Shape(MIXED), 3)
    q = case.q.transpose(0, 1).contiguous().transpose(0, 1)
    assert not q.is_contiguous()
    replace(case, q=q).check(paged_attention)


@pytest.mark.parametrize("seed", range(30))
def test_stored_keys_and_values_equal_the_oracles_bit_for_bit(seed: int) -> None:
    make_store(seed).check(store_kv)
