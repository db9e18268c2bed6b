"""Long contexts are split over several programs: how many is decided on the GPU, so that a CUDA graph stays valid.

A work item is a query tile of a row and one part of the keys that the tile sees (split-KV, or FlashDecoding: Dao,
Haziza, Massa and Sizov 2023). `plan_splits_kernel` writes the items down once a step, each in a record of its own;
whichever of a tile's programs is done last adds the parts up, in a fixed order, so the same step gives the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.kernels.attention.tilings import Rows, Tiling
from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import constant, jit, launch, next_power_of_two, tl

BLOCK_ROWS = constant(256)  # rows, or items, that the plan reads or writes at a time
ITEM = constant(8)  # numbers of a work item
CLASSES = constant(3)  # of lengths, by which items are put in order
# A part has the sixteenth of a context, where that is more than the least and less than four times that: on an H100 one
# row of 8 k keys took 0.56 to 0.76 of the time of least parts, and one of 32 k as long.
FEW_PARTS, LONGER = constant(16), constant(4)
LEAST_MERGED = 4  # parts that a merge reads at a time, at least


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


@jit
def row_of_item(begins, ordered, item):  # type: ignore[no-untyped-def]
    """The place in order of the rows that own items: of `ordered` rows, the last that begins at or before each one."""
    place = item * 0
    step = tl.max(place, axis=0) + 1  # one on the device, as what it becomes
    while step < ordered:
        step *= 2
    while step > 0:
        tried = place + step
        begun = tl.load(begins + tried, mask=tried < ordered, other=2147483647) <= item
        place = tl.where(begun, tried, place)
        step //= 2
    return place


_VARYING = "query_starts context_lengths table_rows rows room counts sliding_window target least"


@jit(do_not_specialize=_VARYING.split())
def plan_splits_kernel(
    items: tl.tensor,  # int32 [room, ITEM]: records
    order: tl.tensor,  # int32 [3, rows]: rows in the order of their items, where each one's begin, and its parts
    query_starts: tl.tensor,
    context_lengths: tl.tensor,
    table_rows: tl.tensor,  # or None
    rows: tl.tensor,
    room: tl.tensor,  # no fewer than there are items
    arrived: tl.tensor,  # int32 [counts], set to zero; None where no context is split
    counts: tl.tensor,
    sliding_window: tl.tensor,  # or None
    target: tl.tensor,  # work items wanted
    least: tl.tensor,  # key tiles of an item
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
) -> None:
    """One program. Items exceed query tiles by less than `target`, and parts are at most twice that excess.

    Rows whose items are long come first, by thirds of the longest: what begins last ends soon. Of a row the last query
    tile comes first, as it sees the most keys.
    """
    await_inputs()
    lanes, told = tl.arange(0, BLOCK_ROWS), (query_starts, context_lengths)
    sums = tl.zeros([BLOCK_ROWS], tl.int64)
    most = tl.full([BLOCK_ROWS], 1, tl.int32)
    for first in range(0, rows, BLOCK_ROWS):
        tiles, keys = row_tiles(told, first + lanes, rows, sliding_window, BLOCK_TOKENS, BLOCK_KEYS)
        sums += tiles.to(tl.int64) * keys
        most = tl.maximum(most, keys)
    longest = tl.max(most, axis=0)
    # Of a long context fewer and longer parts are sooner added up, as long as each is read in little time.
    least = tl.maximum(least, tl.minimum(longest // FEW_PARTS, LONGER * least))
    chunk = tl.maximum((tl.sum(sums, axis=0) + target - 1) // target, least).to(tl.int32)  # key tiles of an item
    longest = tl.minimum(chunk, longest)

    begins, part_begins = order + rows, order + 2 * rows
    taken = tl.sum(tl.zeros([BLOCK_ROWS], tl.int64), axis=0)  # a zero on the device, as what is added to it
    for shorter in tl.static_range(CLASSES):
        for first in range(0, rows, BLOCK_ROWS):
            at = first + lanes
            tiles, keys = row_tiles(told, at, rows, sliding_window, BLOCK_TOKENS, BLOCK_KEYS)
            splits = tl.maximum((keys + chunk - 1) // chunk, 1)
            length = tl.minimum(keys // splits * CLASSES // longest, CLASSES - 1)
            mine = (tiles > 0) & (length == CLASSES - 1 - shorter)
            own = tl.where(mine, tiles * splits, 0).to(tl.int64)
            # Counts of rows, of items and of parts, 21 bits each, are added up at once.
            owned = mine.to(tl.int64) | own << 21 | tl.where(splits > 1, own, 0) << 42
            before = taken + tl.cumsum(owned, axis=0) - owned
            place = before & 0x1FFFFF
            tl.store(order + place, at, mask=mine)
            tl.store(begins + place, (before >> 21) & 0x1FFFFF, mask=mine)
            tl.store(part_begins + place, before >> 42, mask=mine)
            taken += tl.sum(owned, axis=0)
    ordered, total = taken & 0x1FFFFF, (taken >> 21) & 0x1FFFFF
    tl.debug_barrier()  # what was stored is read by other threads

    for first in range(0, room, BLOCK_ROWS):
        item = first + lanes
        there = item < total
        place = row_of_item(begins, ordered, item)
        row = tl.load(order + place, mask=there, other=0)
        index = item - tl.load(begins + place, mask=there, other=0)
        row_start = tl.load(query_starts + row, mask=there, other=0)
        queries = tl.load(query_starts + row + 1, mask=there, other=0) - row_start
        tiles, keys = row_tiles(told, row, rows, sliding_window, BLOCK_TOKENS, BLOCK_KEYS)
        splits = tl.maximum((keys + chunk - 1) // chunk, 1)
        table = row
        if table_rows is not None:
            table = tl.load(table_rows + row, mask=there, other=0)
        record, inside = items + item * ITEM, item < room
        tl.store(record, tl.where(there, splits, 0), mask=inside)
        tl.store(record + 1, index % splits, mask=inside)
        tl.store(record + 2, tiles - 1 - index // splits, mask=inside)
        tl.store(record + 3, row_start, mask=inside)
        tl.store(record + 4, queries, mask=inside)
        tl.store(record + 5, tl.load(context_lengths + row, mask=there, other=0), mask=inside)
        tl.store(record + 6, table, mask=inside)
        first_part = tl.load(part_begins + place, mask=there, other=0) + index // splits * splits
        tl.store(record + 7, first_part, mask=inside)
    if arrived is not None:
        for first in range(0, counts, BLOCK_ROWS):
            tl.store(arrived + first + lanes, 0, mask=first + lanes < counts)


@jit
def read_item(items, item):  # type: ignore[no-untyped-def]
    """A work item: of how many splits of its query tile it is one, none where there is no such item; its split; the
    tile; the row's first token, query tokens, context and block table; the first part of the tile, if it is split. All
    is read at once, so that the block table is but one load away."""
    record = items + item * ITEM
    splits, split, tile = tl.load(record), tl.load(record + 1), tl.load(record + 2)
    row_start, queries, context = tl.load(record + 3), tl.load(record + 4), tl.load(record + 5)
    return splits, split, tile, row_start, queries, context, tl.load(record + 6), tl.load(record + 7)


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
    items: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    table_rows: Tensor | None,
    arrived: Tensor | None,
    sliding_window: int | None,
    target: int,
    least: int,
    block_tokens: int,
    block_keys: int,
) -> None:
    """Writes the rows' work items, `target` of them wanted, each of at least `least` key tiles, into `items` int32
    [room, ITEM], and sets the counts of `arrived` to zero."""
    counts, rows = 0 if arrived is None else arrived.numel(), len(context_lengths)
    order = torch.empty(3, rows, dtype=torch.int32, device=items.device)
    told = items, order, query_starts, context_lengths, table_rows, rows, len(items)
    values = *told, arrived, counts, sliding_window, target, least, block_tokens, block_keys
    launch(plan_splits_kernel, (1,), values, num_warps=4)


def merge_shape(tiles: Tiling, kind: Rows, group: int, block_dim: int) -> tuple[int, int]:
    """How many rows of M, and parts of each, a merge reads at a time."""
    room = tiles.merged * 32 * tiles.num_warps // block_dim
    rows = next_power_of_two(group) if kind is Rows.SHORT else tiles.block_m  # that a tile is likely to fill
    merged = min(tiles.block_m, rows, room // LEAST_MERGED)
    return merged, room // merged
