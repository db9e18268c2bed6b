"""Triton kernel for causal attention over the paged KV cache: prefill, decode and verification rows alike.

A program owns a query tile, a run of one row's query tokens, one KV head and a part of the keys that the tile sees;
every query head that reads this KV head is packed with the tokens into the M dimension of its matrix products, so that
each key is read once a group. The softmax is computed online (Milakov and Gimelshein 2018, algorithm 3;
FlashAttention-2, section 3.1). How long contexts are split is told in `engine.kernels.attention.splits`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.attention.options import Options
from engine.kernels.attention.packed_rows import PackedRows, Part, plan
from engine.kernels.attention.splits import arrives_last, merge_parts, read_item
from engine.kernels.attention.tilings import MANY, Tiling, device_facts, usual_tiling
from engine.kernels.dependent_launch import await_inputs, depends, fetch_ahead
from engine.kernels.jit import constant, jit, launch, tl
from engine.kernels.kv_codes import apart, decoded, scale_value

AHEAD = constant(2)  # tiles of a program that are fetched before its queries are there
FEW_M = constant(64)  # rows of M below which warps divide a tile's keys, not its rows
TOGETHER = 16  # heads of a program that read a latent
NOT_SPLIT = None, None, None, None  # instead of `Partials`


@jit
def blocks_of_tile(  # type: ignore[no-untyped-def]
    block_table, tile, stored_keys, BLOCK_SIZE: tl.constexpr, BLOCK_KEYS: tl.constexpr
):
    """The block that holds each of a tile's keys, and which of its slots. In place of a position outside `stored_keys`
    stands the nearest inside, so that nothing else is read, of the table or the cache."""
    first_key, last_key = stored_keys
    keys = tl.minimum(tl.maximum(tile * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS), first_key), last_key - 1)
    keys = keys.to(tl.uint32)  # of which quotients and wide products are one operation each
    block = tl.load(block_table + keys // BLOCK_SIZE)
    return block.to(tl.uint32).to(tl.int64), keys % BLOCK_SIZE


@jit
def fetch_keys(  # type: ignore[no-untyped-def]
    cache,
    tile,
    stored_keys,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    LATENT: tl.constexpr,
):
    """K and V of some key tiles are on their way. They may lack this step's, which are written beside it."""
    k_cache, v_cache, block_table, block_stride, slot_stride = cache
    LINE: tl.constexpr = 1024 // k_cache.dtype.element_ty.primitive_bitwidth  # elements of 128 bytes
    lines = tl.minimum(tl.arange(0, (BLOCK_DIM + LINE - 1) // LINE) * LINE, HEAD_DIM - 1)
    for other in tl.static_range(0, AHEAD):
        block, slot = blocks_of_tile(block_table, tile + other, stored_keys, BLOCK_SIZE, BLOCK_KEYS)
        at = block * block_stride.to(tl.uint32).to(tl.int64) + slot * slot_stride.to(tl.uint32)
        fetch_ahead(k_cache + at[:, None] + lines[None, :])
        if not LATENT:
            fetch_ahead(v_cache + at[:, None] + lines[None, :])


@jit
def attend(  # type: ignore[no-untyped-def]
    tiles,  # first, last, gap, skipped: [first, last) are read, but from `gap` on the ones `skipped` tiles further
    asked,  # queries [BLOCK_M, BLOCK_DIM], and their positions [BLOCK_M]
    stored_keys,  # first, last: no slot or block-table entry of positions outside [first, last) is touched; not empty
    state,  # fp32: peak [BLOCK_M], total [BLOCK_M] or [BLOCK_M, BLOCK_KEYS], weighted [BLOCK_M, BLOCK_DIM]
    cache,  # K and V of this KV head, the block table of this row; block and slot strides
    scales,  # of K and V of this KV head; of codes, else None
    how,  # scale, sliding window, softcap; None for what is not asked for
    MASKED: tl.constexpr,  # not: every query sees every key
    BLOCK_SIZE: tl.constexpr,
    STORED_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    LATENT: tl.constexpr,
):
    """Fold key tiles into the running softmax state; partial states of disjoint keys merge. The state: the highest
    score so far, in powers of two and finite; the sum of 2 ** (score - peak), or a sum for each place in a tile, which
    warps that have other keys need not exchange; the values' sum under the same weights.
    """
    first, last, gap, skipped = tiles
    q, positions = asked
    peak, total, weighted = state
    k_cache, v_cache, block_table, block_stride, slot_stride = cache
    k_scales, v_scales = scales
    scale, sliding_window, softcap = how
    LOG2_E: tl.constexpr = 1.4426950408889634
    dims = tl.arange(0, BLOCK_DIM)
    tile = first
    if MASKED:
        tile += tl.where(first < gap, 0, skipped)
    block, slot = blocks_of_tile(block_table, tile, stored_keys, BLOCK_SIZE, BLOCK_KEYS)
    for number in tl.range(first, last):
        keys = tile * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS)
        at = block * block_stride.to(tl.uint32).to(tl.int64)
        if k_scales is not None:
            k_scale = tl.load(k_scales + at + slot * STORED_HEADS)
            v_scale = tl.load(v_scales + at + slot * STORED_HEADS)
        at += slot * slot_stride.to(tl.uint32)
        k_pointers = k_cache + at[:, None] + dims[None, :]
        # The next tile's blocks are on their way before its keys are asked for: so the pipeline's stages are all keys.
        tile = number + 1
        if MASKED:
            tile += tl.where(tile < gap, 0, skipped)
        block, slot = blocks_of_tile(block_table, tile, stored_keys, BLOCK_SIZE, BLOCK_KEYS)
        if HEAD_DIM != BLOCK_DIM:
            k = tl.load(k_pointers, mask=(dims < HEAD_DIM)[None, :], other=0)
        else:
            k = tl.load(k_pointers)
        if LATENT:
            v = k
        elif HEAD_DIM != BLOCK_DIM:
            v = tl.load(v_cache + at[:, None] + dims[None, :], mask=(dims < HEAD_DIM)[None, :], other=0)
        else:
            v = tl.load(v_cache + at[:, None] + dims[None, :])

        if k_scales is not None:
            of_codes: tl.constexpr = 1.0 if k.dtype == tl.int8 else 256.0
            k, v = decoded(k, q.dtype), decoded(v, q.dtype)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if k_scales is not None:
            scores *= (scale_value(k_scale) * of_codes)[None, :]
        factor = scale * LOG2_E  # applied with the peak's subtraction, in one instruction
        if softcap is not None:
            decay = tl.exp2(tl.abs(scores) * (-2.0 * LOG2_E * scale / softcap))  # in (0, 1], so tanh cannot overflow
            scores = tl.where(scores < 0, -1.0, 1.0) * (1.0 - decay) / (1.0 + decay)
            factor = softcap * LOG2_E
        if MASKED:
            visible = keys[None, :] <= positions[:, None]
            if sliding_window is not None:
                visible = visible & (keys[None, :] > positions[:, None] - sliding_window)
            scores = tl.where(visible, scores, float("-inf"))

        new_peak = tl.maximum(peak, tl.max(scores, axis=1) * factor)
        weights = tl.exp2(scores * factor - new_peak[:, None])
        decline = tl.exp2(peak - new_peak)
        if len(total.shape) == 2:
            total = total * decline[:, None] + weights
        else:
            total = total * decline + tl.sum(weights, axis=1)
        if v_scales is not None:
            if v.dtype == tl.float16:  # whose weights would be too small for it
                v = v * of_codes * scale_value(v_scale).to(v.dtype)[:, None]
            else:
                weights *= (scale_value(v_scale) * of_codes)[None, :]
        weighted = tl.dot(weights.to(v.dtype), v, weighted * decline[:, None], input_precision="ieee")
        peak = new_peak
    return peak, total, weighted


# Step metadata may be slices of one buffer: specializing on their alignment or on a batch's size would recompile.
_VARYING = "block_tables items table_stride sliding_window"


@jit(do_not_specialize=_VARYING.split())
def paged_attention_kernel(
    out: tl.tensor,
    weighted_parts: tl.tensor,  # as `Partials` has them; None where no context is split
    peaks: tl.tensor,
    totals: tl.tensor,
    arrived: tl.tensor,
    q: tl.tensor,
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    k_scales: tl.tensor,  # of a cache of codes, else None
    v_scales: tl.tensor,
    block_tables: tl.tensor,
    items: tl.tensor,  # `plan_splits_kernel`'s
    sinks: tl.tensor,
    table_stride: tl.tensor,
    out_token_stride: tl.tensor,
    out_head_stride: tl.tensor,
    q_token_stride: tl.tensor,
    q_head_stride: tl.tensor,
    block_stride: tl.tensor,  # of both caches, as the next two
    slot_stride: tl.tensor,
    head_stride: tl.tensor,
    scale: tl.tensor,
    sliding_window: tl.tensor,
    softcap: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    KV_HEADS: tl.constexpr,
    STORED_HEADS: tl.constexpr,  # KV_HEADS, but for one that several programs read
    GROUP: tl.constexpr,  # query heads a KV head
    BLOCK_M: tl.constexpr,  # query tokens * group, padded
    BLOCK_KEYS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    MERGED_M: tl.constexpr,  # rows of M, and parts, that a merge reads at a time
    MERGED_SPLITS: tl.constexpr,
    LATENT: tl.constexpr,  # V is K, and read as that
    EARLY: tl.constexpr,  # items and tables are there before the inputs are awaited
) -> None:
    if not EARLY:
        await_inputs()
    LOG2_E: tl.constexpr = 1.4426950408889634
    BLOCK_TOKENS: tl.constexpr = BLOCK_M // GROUP
    item = tl.program_id(0) // KV_HEADS
    kv_head = tl.program_id(0) % KV_HEADS  # programs side by side read the heads of one slot, which lie side by side
    splits, split, tile, row_start, queries, context, table, first_part = read_item(items, item)

    first_position = context - queries + tile * BLOCK_TOKENS
    last_key = tl.minimum(first_position + BLOCK_TOKENS, context)
    first_key = 0
    first_full = 0  # the key tiles [first_full, last_full) are seen entirely by all queries
    if sliding_window is not None:
        first_key = tl.maximum(first_position - sliding_window + 1, 0)
        first_full = (tl.maximum(last_key - sliding_window, 0) + BLOCK_KEYS - 1) // BLOCK_KEYS
    last_full = (first_position + 1) // BLOCK_KEYS
    first = first_key // BLOCK_KEYS
    last = (last_key + BLOCK_KEYS - 1) // BLOCK_KEYS
    if peaks is not None:
        count = last - first
        shares = tl.maximum(splits, 1)
        last = first + count * (split + 1) // shares
        first += count * split // shares
    first_full = tl.minimum(tl.maximum(first_full, first), last)
    last_full = tl.minimum(tl.maximum(last_full, first_full), last)
    k_head = k_cache + kv_head.to(tl.int64) * head_stride
    v_head = v_cache + kv_head.to(tl.int64) * head_stride
    block_table = block_tables + table.to(tl.int64) * table_stride
    cache = k_head, v_head, block_table, block_stride, slot_stride
    if EARLY:
        if splits != 0:
            fetch_keys(cache, first, (first_key, last_key), BLOCK_SIZE, HEAD_DIM, BLOCK_KEYS, BLOCK_DIM, LATENT)
        await_inputs()
    if splits == 0:
        return  # the grid is an upper bound, known without reading the device

    m = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, BLOCK_DIM)
    tokens = tile * BLOCK_TOKENS + m // GROUP
    heads = (kv_head * GROUP + m % GROUP).to(tl.int64)
    filled = (m < BLOCK_TOKENS * GROUP) & (tokens < queries)
    mask = filled[:, None] & (dims < HEAD_DIM)[None, :]
    token_index = (row_start + tokens).to(tl.int64)
    q_offsets = token_index * q_token_stride + heads * q_head_stride
    query_tile = tl.load(q + q_offsets[:, None] + dims[None, :], mask=mask, other=0.0)

    peak = tl.full([BLOCK_M], -1.0e30, tl.float32)  # finite, so that a tile of hidden keys leaves no -inf - -inf
    total = tl.zeros([BLOCK_M], tl.float32)
    if sinks is not None:
        sink = tl.load(sinks + heads, mask=filled, other=0.0).to(tl.float32) * LOG2_E
        sink = tl.where(split == 0, sink, float("-inf"))  # counted once
        peak = tl.maximum(peak, sink)
        total = tl.exp2(sink - peak)
    if BLOCK_M < FEW_M:
        total = tl.where(tl.arange(0, BLOCK_KEYS)[None, :] == 0, total[:, None], 0.0)
    weighted = tl.zeros([BLOCK_M, BLOCK_DIM], tl.float32)
    positions = context - queries + tokens
    asked, stored_keys = (query_tile, positions), (first_key, last_key)
    scales = None, None
    if k_scales is not None:
        scales = k_scales + kv_head % STORED_HEADS, v_scales + kv_head % STORED_HEADS
    how = scale, sliding_window, softcap
    # Of few queries a tile's mask costs less than beginning again for the tiles that need one.
    FULL_APART: tl.constexpr = BLOCK_M >= FEW_M
    if not FULL_APART:
        first_full, last_full = last, last
    for masked in tl.static_range(0 if FULL_APART else 1, 2):
        if masked:  # the tiles before and after the full ones
            begin, end = first, last - (last_full - first_full)
        else:
            begin, end = first_full, last_full
        tiles = begin, end, first_full, last_full - first_full
        state = peak, total, weighted
        peak, total, weighted = attend(
            tiles,
            asked,
            stored_keys,
            state,
            cache,
            scales,
            how,
            masked,
            BLOCK_SIZE,
            STORED_HEADS,
            HEAD_DIM,
            BLOCK_KEYS,
            BLOCK_DIM,
            LATENT,
        )

    if BLOCK_M < FEW_M:
        total = tl.sum(total, axis=1)
    if peaks is not None and splits > 1:
        part = (first_part + split).to(tl.int64)
        at = (part * KV_HEADS + kv_head) * BLOCK_M + m
        tl.store(peaks + at, peak, mask=filled)
        tl.store(totals + at, total, mask=filled)
        tl.store(weighted_parts + at[:, None] * HEAD_DIM + dims[None, :], weighted, mask=mask)
        if arrives_last(arrived + first_part.to(tl.int64) * KV_HEADS + kv_head, splits):
            first_token = (row_start + tile * BLOCK_TOKENS).to(tl.int64)
            place = out + first_token * out_token_stride + (kv_head * GROUP).to(tl.int64) * out_head_stride
            merge_parts(
                (place, out_token_stride, out_head_stride),
                (weighted_parts, peaks, totals),
                (first_part, splits, kv_head, tl.minimum(queries - tile * BLOCK_TOKENS, BLOCK_TOKENS) * GROUP),
                KV_HEADS,
                GROUP,
                HEAD_DIM,
                BLOCK_M,
                BLOCK_DIM,
                MERGED_M,
                MERGED_SPLITS,
            )
    else:
        out_offsets = token_index * out_token_stride + heads * out_head_stride
        tl.store(out + out_offsets[:, None] + dims[None, :], weighted / total[:, None], mask=mask)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    rows: PackedRows,
    options: Options,
    *,
    out: Tensor | None = None,
    tiling: Tiling | None = None,
    sm: int | None = None,
    processors: int | None = None,
) -> Tensor:
    """Causal attention of the rows' packed query tokens over their context, `[tokens, heads, head_dim]` like q.

    q and both caches share one dtype, or these hold codes (`engine.kernels.kv_codes`); head_dim is 32 to 1024; scale is
    positive. One cache in the place of both is K and V at once: it is read once. The caches are `[blocks, block_size,
    kv_heads, head_dim]`, of the same strides, last dimension contiguous, and hold this step's keys and values already.
    Query head h reads KV head h // (heads / kv_heads); query j of a row is at position context_length - query_length +
    j. Output of tokens that belong to no row is unspecified. `out`, written and returned where it is given, is shaped
    like q with a contiguous last dimension. `tiling`, `sm` and `processors` take the place of what the device would
    get, for measurements and tests. Never waits for the device and allocates through torch alone, so it can be captured
    in a CUDA graph; gives the same bits each time.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    q = q if q.stride(-1) == 1 else q.contiguous()
    facts = device_facts(q.device)
    sm, processors = sm or facts[0], processors or facts[1]
    latent = k_cache is v_cache
    (k_cache, k_scales), (v_cache, v_scales) = apart(k_cache), apart(v_cache)
    assert k_cache.stride() == v_cache.stride(), "what is found in one is at the same place in the other"
    window, stored = options.window, k_cache.shape[2]
    if latent and stored == 1:
        k_cache = k_cache.expand(-1, -1, _programs(q.shape[1]), -1)
    # A plan made before a capture is not part of the graph.
    captured = q.is_cuda and torch.cuda.is_current_stream_capturing()
    cached, strides = (k_cache, v_cache, k_scales, v_scales), k_cache.stride()[:3]
    for part in rows.parts(len(q)) if len(q) else ():
        key = part.kind, window, q.shape, k_cache.shape, tiling, sm, processors, captured
        planned = rows.plans.get(key)
        # Of a plan that is made for this launch it is the successor, and must wait for it.
        early = planned is not None and depends(q.device)
        if planned is None:
            tiles = tiling or _usual_tiling(part, q, k_cache, sm, processors)
            planned = rows.plans[key] = plan(part, q, k_cache, stored, window, tiles, processors)
        tensors = q, *cached, part.block_tables, planned.items, options.sinks
        how = options.scale, window, options.softcap
        sizes = part.block_tables.stride(0), *out.stride()[:2], *q.stride()[:2], *strides
        values = out, *(planned.partials or NOT_SPLIT), *tensors, *sizes, *how, *planned.shape, latent, early
        grid, tiles = (planned.items.shape[0] * k_cache.shape[2],), planned.tiles
        launch(paged_attention_kernel, grid, values, num_warps=tiles.num_warps, num_stages=tiles.num_stages)
    return out


def _programs(heads: int) -> int:
    """Among how many programs the heads that read a latent are dealt out."""
    return next(count for count in range(1, heads + 1) if heads % count == 0 and heads // count <= TOGETHER)


def _usual_tiling(part: Part, q: Tensor, k_cache: Tensor, sm: int, processors: int) -> Tiling:
    (_, heads, head_dim), kv_heads = q.shape, k_cache.shape[2]
    coded, crowded = k_cache.dtype != q.dtype, len(part.context_lengths) * kv_heads > MANY * processors
    return usual_tiling(sm, part.kind, head_dim, q.dtype, heads // kv_heads, part.queries, coded, crowded)
