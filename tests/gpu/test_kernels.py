"""The Triton kernels agree with the float64 oracle on the GPU that is here."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.kernels.attention.options import Options
from engine.kernels.attention.packed_rows import SHORT, PackedRows
from engine.kernels.attention.paged_attention import paged_attention
from engine.kernels.attention.tilings import Rows, candidates
from engine.kernels.dependent_launch import step_of
from engine.kernels.store_kv import store_kv
from tests.engine.kernels import oracle
from tests.engine.kernels.paged_case import Shape, make_case, make_store, random_shape

OutOfResources = pytest.importorskip("triton.runtime.errors").OutOfResources
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])
PARTS = 4  # of what is compiled anew, for seconds each


def fresh() -> int:
    return torch.seed() % 2**32


@DTYPES
def test_attention_agrees_with_the_oracle_on_random_shapes(dtype: torch.dtype) -> None:
    first = fresh()
    for seed in range(first, first + 6):  # each is compiled anew, for seconds
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
    make_case(shape, fresh(), "cuda").check(paged_attention)


@DTYPES
def test_latents_of_many_heads_agree_with_the_oracle(dtype: torch.dtype) -> None:
    rows = ((1, 900), (1, 17), (70, 300), (0, 5), (5, 333))
    shape = Shape(rows, kv_heads=1, group=128, head_dim=576 if dtype.itemsize == 2 else 288, dtype=dtype, latent=True)
    make_case(shape, fresh(), "cuda").check(paged_attention)


@DTYPES
def test_a_decode_step_of_many_rows_agrees_with_the_oracle(dtype: torch.dtype) -> None:
    rows = tuple((1, 1 + 13 * row) for row in range(130))
    shape = Shape(rows, kv_heads=2, group=7, head_dim=128, sliding_window=200, sinks=True, dtype=dtype)
    make_case(shape, fresh(), "cuda").check(paged_attention)


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
    out = paged_attention(q, cache, cache, PackedRows(starts, contexts, table, short=1), Options(0.1))
    expected = oracle.paged_attention(q.double(), cache, cache, table, starts, contexts, Options(0.1))
    torch.testing.assert_close(out.double(), expected, rtol=1.6e-2, atol=1.6e-2)


@DTYPES
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sinks": True, "softcap": 20.0},
        {"sliding_window": 1000, "sinks": True},
        {"table_rows": True, "head_dim": 80},
    ],
    ids=["plain", "capped", "window", "tables"],
)
def test_contexts_that_are_split_agree_with_the_oracle(dtype: torch.dtype, options: dict[str, Any]) -> None:
    rows = ((1, 5000), (4, 3000), (1, 1), (SHORT, 1700), (0, 3), (1, 300), (100, 2500), (3, 900))
    case = make_case(replace(Shape(rows, kv_heads=2, group=4, head_dim=128, dtype=dtype), **options), fresh(), "cuda")
    for short in (None, 0, 3):
        case.check(paged_attention, short)
    assert torch.equal(case.run(paged_attention), case.run(paged_attention))


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", Rows)
def test_every_candidate_tiling_that_fits_agrees_with_the_oracle(kind: Rows, part: int) -> None:
    rows, queries = (((1, 3000), (1, 70)), 1) if kind is Rows.SHORT else (((150, 900), (64, 64)), 214)
    case = make_case(Shape(rows, kv_heads=2, group=4, head_dim=128, dtype=torch.bfloat16), fresh(), "cuda")
    tried = 0
    for candidate in list(candidates(kind, 128, 4, queries))[part::PARTS]:
        try:
            case.run(paged_attention, tiling=candidate)
        except OutOfResources:
            continue
        case.check(paged_attention, tiling=candidate)
        tried += 1
    assert tried >= 1


def test_layers_that_share_a_plan_merge_alike_however_often_they_are_replayed() -> None:
    shape = Shape(((1, 9000), (1, 64), (4, 5000), (1, 2)), kv_heads=8, group=4, head_dim=128, dtype=torch.bfloat16)
    case = make_case(shape, fresh(), "cuda")
    outs = [torch.empty_like(case.q) for _ in range(8)]
    rows = case.check(paged_attention)
    (plan,) = rows.plans.values()
    assert plan.partials is not None
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        rows = case.rows()
        for out in outs:
            paged_attention(case.q, case.k_cache, case.v_cache, rows, case.options, out=out)
    (plan,) = rows.plans.values()
    first = case.run(paged_attention)
    for _ in range(100):
        for out in outs:
            out.fill_(torch.nan)
        graph.replay()
        assert all(torch.equal(out, first) for out in outs)
        assert plan.partials is None or not plan.partials.arrived.any()


def test_a_capture_is_replayed_with_lengths_that_split_otherwise() -> None:
    shape = Shape(((1, 4000), (1, 64), (1, 900), (1, 2)), kv_heads=2, group=4, head_dim=128, dtype=torch.bfloat16)
    case = make_case(shape, fresh(), "cuda")
    out = torch.full_like(case.q, torch.nan)
    most = case.context_lengths.clone()
    case.check(paged_attention)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):  # as the engine captures
        rows = case.rows()
        paged_attention(case.q, case.k_cache, case.v_cache, rows, case.options, out=out)
    (plan,) = rows.plans.values()
    splits = set()
    for lengths in ([4000, 64, 900, 2], [1, 1, 1, 1], [300, 64, 900, 2], [4000, 1, 1, 1], [200, 60, 20, 2]):
        case.context_lengths.copy_(torch.minimum(most, torch.tensor(lengths, device="cuda", dtype=torch.int32)))
        out.fill_(torch.nan)
        graph.replay()
        torch.testing.assert_close(out.double(), case.expected(), rtol=1.6e-2, atol=1.6e-2)
        splits.add(tuple(plan.items[:, 0].tolist()))
    assert len(splits) >= 3


def test_a_layer_sees_what_was_stored_just_before_it_where_launches_depend_on_each_other() -> None:
    """All but the first fetch keys before that. Layers share a cache here: what one stores, the one before must not
    see."""
    contexts = (3000, 64, 900, 2)
    shape = Shape(tuple((1, n) for n in contexts), kv_heads=8, group=4, head_dim=128, dtype=torch.bfloat16)
    case = make_case(shape, fresh(), "cuda")
    last = torch.tensor(contexts, device="cuda") - 1
    slots = case.tables[torch.arange(4, device="cuda"), last // shape.block_size].long() * shape.block_size
    slots += last % shape.block_size
    new = torch.empty(8, 2, len(contexts), shape.kv_heads, shape.head_dim, dtype=shape.dtype, device="cuda")
    outs = torch.empty(8, *case.q.shape, dtype=shape.dtype, device="cuda")

    def layers() -> None:
        rows = case.rows()
        for (keys, values), out in zip(new, outs):
            store_kv(keys, values, case.k_cache, case.v_cache, slots)
            paged_attention(case.q, case.k_cache, case.v_cache, rows, case.options, out=out)

    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), step_of(len(contexts)):
        new.normal_()
        layers()  # compiled before the capture
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            layers()
    for _ in range(100):
        new.normal_()
        outs.fill_(torch.nan)
        graph.replay()
        found = outs.clone()
        layers()
        assert torch.equal(found, outs)
