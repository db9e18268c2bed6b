"""Long contexts are split over several programs: how many is decided on the GPU, so that a CUDA graph stays valid.

A work item is a query tile of a row and one part of the keys that the tile sees (split-KV, or FlashDecoding: Dao,
Haziza, Massa and Sizov 2023). `plan_splits_kernel` numbers the items once a step; whichever of a tile's programs is
done last adds the parts up, in a fixed order, so the same step gives the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from engine.kernels.attention.tilings import Rows, Tiling
from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import constant, jit, launch, next_power_of_two, tl

BLOCK_ROWS = constant(256)  # rows that a search or the plan reads at a time
LEAST_MERGED = 4  # parts that a merge reads at a time, at least


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


_VARYING = "query_starts context_lengths rows counts sliding_window target least"


@jit(do_not_specialize=_VARYING.split())
def plan_splits_kernel(
    plan: tl.tensor,  # int32 [2, rows + 1]: where each row's items begin, and where its parts
    query_starts: tl.tensor,
    context_lengths: tl.tensor,
    rows: tl.tensor,
    arrived: tl.tensor,  # int32 [counts], set to zero; None where no context is split
    counts: tl.tensor,
    sliding_window: tl.tensor,  # or None
    target: tl.tensor,  # work items wanted
    least: tl.tensor,  # key tiles of an item
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
) -> None:
    """One program. Items exceed query tiles by less than `target`, and parts are at most twice that excess."""
    await_inputs()
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
    if arrived is not None:
        for first in range(0, counts, BLOCK_ROWS):
            tl.store(arrived + first + lanes, 0, mask=first + lanes < counts)


@jit
def arrives_last(arrived, splits):  # type: ignore[no-untyped-def]
    """Whether this program is the last of a tile's `splits` to have stored its part. Whoever is sees the others' parts,
    and leaves the count at zero for the next layer."""
    tl.debug_barrier()  # every thread has stored before one of them counts
    last = tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == splits - 1
    tl.debug_barrier()  # no thread reads before that one has counted
    if last:
        tl.store(arrived, 0)
    return last


@jit
def merge_parts(  # type: ignore[no-untyped-def]
    out,  # at the tile's first token and this KV head's first query head; strides of tokens and heads
    partials,  # as `Partials` has them
    tile,  # its first part, how many there are, the KV head, and how many rows of M are filled
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    MERGED_M: tl.constexpr,
    MERGED_SPLITS: tl.constexpr,
):
    """Attention of a tile, all its parts added up in their order, some rows of M after others."""
    place, token_stride, head_stride = out
    weighted, peaks, totals = partials
    first_part, splits, kv_head, count = tile
    dims = tl.arange(0, BLOCK_DIM)
    lanes = tl.arange(0, MERGED_SPLITS)
    for first_m in range(0, count, MERGED_M):
        m = first_m + tl.arange(0, MERGED_M)
        inside = (m < count)[:, None] & (dims < HEAD_DIM)[None, :]
        peak = tl.full([MERGED_M], -1.0e30, tl.float32)
        total = tl.zeros([MERGED_M], tl.float32)
        value = tl.zeros([MERGED_M, BLOCK_DIM], tl.float32)
        for first in tl.range(0, splits, MERGED_SPLITS):
            stored = first + lanes < splits
            part = (first_part + first + lanes).to(tl.int64) * KV_HEADS + kv_head
            at = part[:, None] * BLOCK_M + m[None, :]
            mask = stored[:, None] & (m < count)[None, :]
            # Past the multiprocessor's own cache, which other programs' stores do not reach.
            part_peaks = tl.load(peaks + at, mask=mask, other=-1.0e30, cache_modifier=".cg")
            part_totals = tl.load(totals + at, mask=mask, other=0.0, cache_modifier=".cg")
            values = tl.load(
                weighted + at[:, :, None] * HEAD_DIM + dims[None, None, :],
                mask=stored[:, None, None] & inside[None, :, :],
                other=0.0,
                cache_modifier=".cg",
            )
            new_peak = tl.maximum(peak, tl.max(part_peaks, axis=0))
            weights = tl.exp2(part_peaks - new_peak[None, :])
            decline = tl.exp2(peak - new_peak)
            total = total * decline + tl.sum(weights * part_totals, axis=0)
            value = value * decline[:, None] + tl.sum(weights[:, :, None] * values, axis=0)
            peak = new_peak
        at_m = (m // GROUP).to(tl.int64) * token_stride + (m % GROUP).to(tl.int64) * head_stride
        tl.store(place + at_m[:, None] + dims[None, :], value / total[:, None], mask=inside)


class Partials(NamedTuple):
    """Softmax states of parts of contexts, float32, and how many of a tile's parts are stored: counted at its first."""

    weighted: Tensor  # [parts, kv_heads, block_m, head_dim]
    peaks: Tensor  # [parts, kv_heads, block_m]
    totals: Tensor
    arrived: Tensor  # int32 [parts, kv_heads]; zero before each layer and after it


def plan_splits(
    starts: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    arrived: Tensor | None,
    sliding_window: int | None,
    target: int,
    least: int,
    block_tokens: int,
    block_keys: int,
) -> None:
    """Numbers the rows' work items, `target` of them wanted, each of at least `least` key tiles, into `starts` int32
    [2, rows + 1], and sets the counts of `arrived` to zero."""
    counts = 0 if arrived is None else arrived.numel()
    wanted = len(context_lengths), arrived, counts, sliding_window, target, least
    values = starts, query_starts, context_lengths, *wanted, block_tokens, block_keys
    launch(plan_splits_kernel, (1,), values, num_warps=4)


def merge_shape(tiles: Tiling, kind: Rows, group: int, block_dim: int) -> tuple[int, int]:
    """How many rows of M, and parts of each, a merge reads at a time."""
    room = tiles.merged * 32 * tiles.num_warps // block_dim
    rows = next_power_of_two(group) if kind is Rows.SHORT else tiles.block_m  # that a tile is likely to fill
    merged = min(tiles.block_m, rows, room // LEAST_MERGED)
    return merged, room // merged
