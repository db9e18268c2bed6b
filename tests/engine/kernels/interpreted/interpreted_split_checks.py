"""Checks of contexts that are split over programs, which `test_interpreted.py` runs with TRITON_INTERPRET=1.

float32 and float16 only: the interpreter's product of bfloat16 tiles is wrong (Triton 3.9).
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

import engine.kernels.attention.paged_attention as module
from engine.kernels.attention.packed_rows import LEAST_KEYS, NEVER, SHORT, PackedRows
from engine.kernels.attention.paged_attention import paged_attention
from engine.kernels.attention.splits import FEW_PARTS, ITEM, LONGER, plan_splits
from engine.kernels.attention.tilings import Tiling
from tests.engine.kernels.paged_case import TOLERANCE, Shape, make_case

LONG_CONTEXTS = ((1, 600), (0, 4), (5, 560), (1, 3), (20, 540))
SMALL = Tiling(16, 32, 4, 2, 4)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def split_rows(rows: PackedRows) -> int:
    """How many rows have parts to merge, in the plans that the launches made."""
    return sum(len(set(plan.items[plan.items[:, 0] > 1, 3].tolist())) for plan in rows.plans.values())


def random_rows(seed: int) -> list[tuple[int, int]]:
    random = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=random))

    short = [(pick(0, SHORT), pick(SHORT, (40, 700)[pick(0, 1)])) for _ in range(pick(1, 3))]
    long = [(pick(1, 30), pick(30, 700)) for _ in range(pick(0, 1))]
    return [(1, pick(550, 800)), *short, *long]


@pytest.mark.parametrize("seed", range(5))
def test_long_contexts_of_random_shapes_agree_with_the_oracle(seed: int) -> None:
    shape = Shape(
        random_rows(seed),
        kv_heads=1 + seed % 2,
        group=(1, 4, 7, 2)[seed % 4],
        head_dim=(32, 64, 80)[seed % 3],
        block_size=(16, 64)[seed // 2 % 2],
        sliding_window=(None, 300)[seed // 4],
        softcap=(None, 5.0)[seed % 5 == 4],
        sinks=seed % 3 == 1,
        dtype=(torch.float32, torch.float16)[seed % 2],
        table_rows=seed % 4 == 2,
    )
    assert split_rows(make_case(shape, seed).check(paged_attention, processors=4)) > 0


@pytest.mark.parametrize("short", [None, 0], ids=["short", "long"])
@pytest.mark.parametrize("options", [{}, {"sliding_window": 400, "sinks": True}])
def test_splits_agree_with_no_splits(options: dict[str, object], short: int | None) -> None:
    case = make_case(replace(Shape(LONG_CONTEXTS, kv_heads=1, head_dim=32), **options), 5)
    whole = case.run(paged_attention, case.rows(short), processors=1, tiling=replace(SMALL, programs=1))
    split = case.run(paged_attention, case.rows(short), processors=4)
    torch.testing.assert_close(split, whole, rtol=TOLERANCE[torch.float32], atol=TOLERANCE[torch.float32])
    assert not torch.equal(split, whole)
    assert torch.equal(split, case.run(paged_attention, case.rows(short), processors=4))


@pytest.mark.parametrize("queries", [2, 5, SHORT])
def test_verification_rows_over_long_prefixes_agree_with_the_oracle(queries: int) -> None:
    rows = ((queries, 600), (queries, queries))
    case = make_case(Shape(rows, kv_heads=1, group=4, head_dim=32, dtype=torch.float16), queries)
    assert split_rows(case.check(paged_attention, processors=4)) == 1


@pytest.mark.parametrize("window", [253, 254, 300])
def test_a_split_window_sees_neither_a_key_too_many_nor_one_too_few(window: int) -> None:
    shape = Shape(((1, 600), (4, 500), (1, window), (1, window + 1)), kv_heads=1, head_dim=32, sliding_window=window)
    rows = make_case(shape, window).check(paged_attention, processors=4)
    assert (split_rows(rows) > 0) == (window + 3 > LEAST_KEYS)


def test_a_split_tile_of_many_queries_is_merged_in_full() -> None:
    case = make_case(Shape(((70, 540), (33, 600)), kv_heads=1, group=2, head_dim=32), 0)
    assert split_rows(case.check(paged_attention, processors=8, tiling=Tiling(64, 32, 4, 2, 2))) == 2


def test_padding_rows_that_share_one_table_are_computed_as_any_row() -> None:
    case = make_case(Shape(((1, 600), (1, 1), (1, 1), (1, 1)), kv_heads=1, head_dim=32), 1)
    shared = torch.tensor([0, 1, 1, 1], dtype=torch.int32)
    padded = replace(case, table_rows=shared, tables=case.tables[shared.long()])
    padded.check(paged_attention, processors=4)


@pytest.mark.parametrize("short", [None, 0], ids=["short", "long"])
def test_every_layer_merges_and_leaves_its_counts_at_zero(short: int | None) -> None:
    case = make_case(Shape((*LONG_CONTEXTS, (1, 1), (0, 1)), kv_heads=2, group=3, head_dim=32), 3)
    rows, outs = case.rows(short), []
    for _ in range(3):
        outs.append(torch.full_like(case.q, torch.nan))
        paged_attention(case.q, case.k_cache, case.v_cache, rows, case.options, processors=4, out=outs[-1])
        for plan in rows.plans.values():
            assert plan.partials is None or not plan.partials.arrived.any()
    assert split_rows(rows) > 0
    assert not outs[0][: rows.query_starts[-1]].isnan().any()
    assert all(torch.equal(out, outs[0]) for out in outs)


def test_a_plan_serves_every_layer_of_a_kind_and_is_made_once() -> None:
    case = make_case(Shape(((1, 90), (20, 70)), kv_heads=1, group=1, head_dim=32), 2)
    rows = case.rows()
    for window in (None, 64, None, 64):
        options = replace(case.options, window=window)
        paged_attention(case.q, case.k_cache, case.v_cache, rows, options, processors=4)
        paged_attention(case.q, case.k_cache, case.v_cache, rows, options, processors=4)
    assert len(rows.plans) == 4  # short and long rows, with and without a window


@pytest.mark.parametrize(("window", "head_dim"), [(None, 32), (100, 80), (None, 64)])
def test_later_layers_fetch_the_first_keys_that_they_read_and_give_the_same_bits(
    window: int | None, head_dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    monkeypatch.setattr(module, "fetch_ahead", lambda pointers: fetched.extend(pointers.handle.data.flat))
    monkeypatch.setattr(module, "depends", lambda device: True)
    shape = Shape((*LONG_CONTEXTS[:3], (1, 1), (0, 1)), kv_heads=2, group=3, head_dim=head_dim, sliding_window=window)
    case = make_case(shape, 3)
    rows, found = case.rows(), []
    for _ in range(2):
        assert not fetched, "the first layer's plan is made just before it"
        out = torch.zeros_like(case.q)
        found.append(paged_attention(case.q, case.k_cache, case.v_cache, rows, case.options, processors=4, out=out))
    assert torch.equal(*found)
    assert fetched
    for cache in (case.k_cache, case.v_cache):
        begin, size = cache.data_ptr(), cache.element_size()
        inside = {(at - begin) // size for at in fetched if begin <= at < begin + cache.numel() * size}
        for table, (queries, context) in zip(case.tables, shape.rows):
            first = max(0, context - queries - window + 1) if window else 0
            place = int(table[first // cache.shape[1]]) * cache.stride(0) + first % cache.shape[1] * cache.stride(1)
            assert not queries or {place + head * cache.stride(2) for head in range(cache.shape[2])} <= inside
    ends = [(cache.data_ptr(), cache.data_ptr() + cache.nbytes) for cache in (case.k_cache, case.v_cache)]
    assert all(any(begin <= at < end for begin, end in ends) for at in fetched)


def plain_plan(
    rows: Sequence[tuple[int, int]], window: int | None, target: int, least: int, block_tokens: int, block_keys: int
) -> list[tuple[int, ...]]:
    """The records of items in their order; the sixth number, a table, is the row's."""
    work = []
    for queries, context in rows:
        seen = context if window is None else min(context, window + queries - 1)
        work.append((-(-queries // block_tokens), -(-seen // block_keys)))
    longest = max(1, *(keys for _, keys in work))
    least = max(least, min(longest // FEW_PARTS.value, LONGER.value * least))
    chunk = max(least, -(-sum(tiles * keys for tiles, keys in work) // target))
    longest = min(chunk, longest)
    starts = list(accumulate((queries for queries, _ in rows), initial=0))
    classes: list[list[int]] = [[], [], []]
    for row, (_, keys) in enumerate(work):
        classes[min(2, keys // max(1, -(-keys // chunk)) * 3 // longest)].append(row)
    items: list[tuple[int, ...]] = []
    parts = 0
    for row in chain.from_iterable(reversed(classes)):
        (queries, context), (tiles, keys) = rows[row], work[row]
        splits = max(1, -(-keys // chunk))
        for tile in reversed(range(tiles)):
            items += [(splits, split, tile, starts[row], queries, context, row, parts) for split in range(splits)]
            parts += splits if splits > 1 else 0
    return items


@pytest.mark.parametrize("seed", range(9))
def test_the_plan_is_what_plain_python_makes_of_it_and_keeps_its_bounds(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=random))

    rows = []
    for _ in range(pick(1, (6, 700)[seed % 3 == 0])):
        queries = pick(0, (3, 200)[seed % 2])
        rows.append((queries, queries + pick(0, 30_000)))
    window = (None, 1, 4096)[seed % 3]
    target, least, block_tokens, block_keys = pick(1, 300), (pick(1, 8), NEVER)[seed % 7 == 6], pick(1, 32), 64
    tiles = sum(-(-queries // block_tokens) for queries, _ in rows)
    items = torch.full((tiles + target + seed, int(ITEM.value)), -7, dtype=torch.int32)
    arrived = None if seed % 2 else torch.full((pick(1, 900),), 7, dtype=torch.int32)
    tables = torch.arange(len(rows), dtype=torch.int32) + 5 if seed % 4 == 1 else None
    plan_splits(
        items,
        torch.tensor([0, *(queries for queries, _ in rows)]).cumsum(0).int(),
        torch.tensor([context for _, context in rows], dtype=torch.int32),
        tables,
        arrived=arrived,
        sliding_window=window,
        target=target,
        least=least,
        block_tokens=block_tokens,
        block_keys=block_keys,
    )
    expected = plain_plan(rows, window, target, least, block_tokens, block_keys)
    count = len(expected)
    assert count - tiles < target
    assert not items[count:, 0].any()
    got = items[:count].clone()
    if tables is not None:
        got[:, 6] -= 5
    split = got[:, 0] > 1
    assert int(split.sum()) <= 2 * (target - 1)
    wanted = torch.tensor(expected, dtype=torch.int32).view(count, -1)
    assert torch.equal(got[:, :7], wanted[:, :7])
    assert torch.equal(got[split, 7], wanted[split, 7])
    assert arrived is None or not arrived.any()


def test_rows_are_found_beyond_the_first_hundreds() -> None:
    rows = [(0, 0)] * 200 + [(1, 3)] + [(0, 0)] * 200 + [(1, 700), (1, 5)]
    case = make_case(Shape(rows, kv_heads=1, group=1, head_dim=32), 0)
    assert split_rows(case.check(paged_attention, processors=4)) == 1
