"""Long contexts are split over several programs: how many is decided on the GPU, so that a CUDA graph stays valid.

A work item is a query tile of a row and one part of the keys that the tile sees (split-KV, or FlashDecoding: Dao,
Haziza, Massa and Sizov 2023). `plan_splits_kernel` numbers the items once a step; `merge_splits_kernel` adds the parts
of a tile up in a fixed order, so the same step gives the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from engine.kernels.jit import constant, jit, launch, next_power_of_two, tl

BLOCK_ROWS = constant(256)  # rows that a search or the plan reads at a time
BLOCK_SPLITS = constant(16)  # parts that a merge reads at a time
MERGED_ROWS = 4  # rows of M that a program merges one after another, at most


@jit
def find_item(starts, query_starts, rows, item, BLOCK_TOKENS: tl.constexpr):  # type: ignore[no-untyped-def]
    """A numbered item's row, its index within the row, the row's first token and query length, the item's query tile,
    its split, and of how many.

    Row r owns the items [starts[r], starts[r + 1]), the last query tile's first: it sees the most keys. Reading all
    starts at once waits for memory once, where a binary search waits for a chain of loads.
    """
    row = -1
    for first in range(0, rows, BLOCK_ROWS):
        at = first + tl.arange(0, BLOCK_ROWS)
        begun = tl.load(starts + at, mask=at < rows, other=2147483647) <= item
        row += tl.sum(begun.to(tl.int32), axis=0)
    start = tl.load(starts + row)
    items = tl.load(starts + row + 1) - start
    row_start = tl.load(query_starts + row)
    queries = tl.load(query_starts + row + 1) - row_start
    tiles = (queries + BLOCK_TOKENS - 1) // BLOCK_TOKENS
    splits = items // tiles
    index = item - start
    return row, index, row_start, queries, tiles - 1 - index // splits, index % splits, splits


@jit
def row_tiles(  # type: ignore[no-untyped-def]
    told, at, rows, sliding_window, BLOCK_TOKENS: tl.constexpr, BLOCK_KEYS: tl.constexpr
):
    """Query tiles of rows, and the key tiles that their queries see together; none of rows without queries. `told` are
    the rows' query starts and context lengths."""
    query_starts, context_lengths = told
    inside = at < rows
    queries = tl.load(query_starts + at + 1, mask=inside, other=0) - tl.load(query_starts + at, mask=inside, other=0)
    visible = tl.load(context_lengths + at, mask=inside, other=0)
    if sliding_window is not None:
        visible = tl.minimum(visible, sliding_window + queries - 1)
    return (queries + BLOCK_TOKENS - 1) // BLOCK_TOKENS, (visible + BLOCK_KEYS - 1) // BLOCK_KEYS


@jit(do_not_specialize=["query_starts", "context_lengths", "rows", "sliding_window", "target", "least"])
def plan_splits_kernel(
    plan: tl.tensor,  # int32 [2, rows + 1]: where each row's items begin, and where its parts
    query_starts: tl.tensor,
    context_lengths: tl.tensor,
    rows: tl.tensor,
    sliding_window: tl.tensor,  # or None
    target: tl.tensor,  # work items wanted
    least: tl.tensor,  # key tiles of an item
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
) -> None:
    """One program. Items exceed query tiles by less than `target`, and parts are at most twice that excess."""
    lanes, told = tl.arange(0, BLOCK_ROWS), (query_starts, context_lengths)
    sums = tl.zeros([BLOCK_ROWS], tl.int64)
    for first in range(0, rows, BLOCK_ROWS):
        tiles, keys = row_tiles(told, first + lanes, rows, sliding_window, BLOCK_TOKENS, BLOCK_KEYS)
        sums += tiles.to(tl.int64) * keys
    chunk = tl.maximum((tl.sum(sums, axis=0) + target - 1) // target, least).to(tl.int32)  # key tiles of an item

    starts, part_starts = plan, plan + rows + 1
    tl.store(starts, 0)
    tl.store(part_starts, 0)
    item = tl.sum(tl.zeros([BLOCK_ROWS], tl.int32), axis=0)  # a zero on the device, as what is added to it
    part = item
    for first in range(0, rows, BLOCK_ROWS):
        at = first + lanes
        tiles, keys = row_tiles(told, at, rows, sliding_window, BLOCK_TOKENS, BLOCK_KEYS)
        splits = tl.maximum((keys + chunk - 1) // chunk, 1)
        items = tiles * splits
        parts = tl.where(splits > 1, items, 0)
        tl.store(starts + at + 1, item + tl.cumsum(items, axis=0), mask=at < rows)
        tl.store(part_starts + at + 1, part + tl.cumsum(parts, axis=0), mask=at < rows)
        item += tl.sum(items, axis=0)
        part += tl.sum(parts, axis=0)


@jit(do_not_specialize=["plan", "query_starts", "rows"])
def merge_splits_kernel(
    out: tl.tensor,
    weighted: tl.tensor,  # fp32 [parts, kv_heads, BLOCK_M, HEAD_DIM]
    peaks: tl.tensor,  # fp32 [parts, kv_heads, BLOCK_M]
    totals: tl.tensor,
    plan: tl.tensor,
    query_starts: tl.tensor,
    rows: tl.tensor,
    out_token_stride: tl.tensor,
    out_head_stride: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    PROGRAMS: tl.constexpr,  # of each part
) -> None:
    """The programs of a tile's parts share the tile's rows of M out among them: each merges all parts of its own."""
    BLOCK_TOKENS: tl.constexpr = BLOCK_M // GROUP
    program = tl.program_id(0)
    kv_head = program % KV_HEADS
    share = program // KV_HEADS % PROGRAMS
    part = program // (KV_HEADS * PROGRAMS)
    part_starts = plan + rows + 1
    if part >= tl.load(part_starts + rows):
        return
    _, _, row_start, queries, tile, split, splits = find_item(part_starts, query_starts, rows, part, BLOCK_TOKENS)
    first_part = part - split
    filled = tl.minimum(queries - tile * BLOCK_TOKENS, BLOCK_TOKENS) * GROUP

    dims = tl.arange(0, BLOCK_DIM)
    lanes = tl.arange(0, BLOCK_SPLITS)
    for m in range(split * PROGRAMS + share, filled, splits * PROGRAMS):
        peak = tl.max(tl.full([BLOCK_SPLITS], -1.0e30, tl.float32), axis=0)
        total = tl.sum(tl.zeros([BLOCK_SPLITS], tl.float32), axis=0)
        value = tl.zeros([BLOCK_DIM], tl.float32)
        for first in tl.range(0, splits, BLOCK_SPLITS):
            inside = first + lanes < splits
            at = ((first_part + first + lanes).to(tl.int64) * KV_HEADS + kv_head) * BLOCK_M + m
            part_peaks = tl.load(peaks + at, mask=inside, other=-1.0e30)
            part_totals = tl.load(totals + at, mask=inside, other=0.0)
            values = tl.load(
                weighted + at[:, None] * HEAD_DIM + dims[None, :],
                mask=inside[:, None] & (dims < HEAD_DIM)[None, :],
                other=0.0,
            )
            new_peak = tl.maximum(peak, tl.max(part_peaks, axis=0))
            weights = tl.exp2(part_peaks - new_peak)
            decline = tl.exp2(peak - new_peak)
            total = total * decline + tl.sum(weights * part_totals, axis=0)
            value = value * decline + tl.sum(weights[:, None] * values, axis=0)
            peak = new_peak
        token = (row_start + tile * BLOCK_TOKENS + m // GROUP).to(tl.int64)
        head = (kv_head * GROUP + m % GROUP).to(tl.int64)
        tl.store(out + token * out_token_stride + head * out_head_stride + dims, value / total, mask=dims < HEAD_DIM)


class Partials(NamedTuple):
    """Softmax states of parts of contexts, float32."""

    weighted: Tensor  # [parts, kv_heads, block_m, head_dim]
    peaks: Tensor  # [parts, kv_heads, block_m]
    totals: Tensor


def plan_splits(
    starts: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    sliding_window: int | None,
    target: int,
    least: int,
    block_tokens: int,
    block_keys: int,
) -> None:
    """Numbers the rows' work items, `target` of them wanted, each of at least `least` key tiles, into `starts` int32
    [2, rows + 1]."""
    wanted = len(context_lengths), sliding_window, target, least
    values = starts, query_starts, context_lengths, *wanted, block_tokens, block_keys
    launch(plan_splits_kernel, (1,), values, num_warps=4)


def merge_splits(out: Tensor, partials: Partials, starts: Tensor, query_starts: Tensor) -> None:
    """Merges the parts; programs beyond the parts that there are return at once."""
    parts, kv_heads, block_m, head_dim = partials.weighted.shape
    programs = max(1, block_m // (2 * MERGED_ROWS))  # a tile that is split has two parts at least
    shape = kv_heads, out.shape[1] // kv_heads, head_dim, block_m, next_power_of_two(head_dim)
    sizes = *out.stride()[:2], *shape, programs
    values = out, *partials, starts, query_starts, starts.shape[1] - 1, *sizes
    launch(merge_splits_kernel, (parts * kv_heads * programs,), values, num_warps=4)
