"""Triton kernel for causal attention over the paged KV cache: prefill and decode rows in one launch.

A program owns one query tile, a run of one row's query tokens, and one KV head; every query head that reads this KV
head is packed with the tokens into the M dimension of its matrix products, so that each key is read once a group.
The softmax is computed online (Milakov and Gimelshein 2018, algorithm 3; FlashAttention-2, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.kernels.jit import jit, next_power_of_two, tl


@jit
def row_of_tile(
    query_starts: tl.tensor, rows: tl.tensor, tile: tl.tensor, BLOCK_TOKENS: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """The row that owns a query tile, and the tile's index within that row.

    Row r's tiles begin at query_starts[r] // BLOCK_TOKENS + r. That leaves each row at least as many tiles as it
    fills, takes no sum over rows, and strictly increases, so a binary search finds the row.
    """
    low = 0
    high = rows
    while low < high:  # rows [0, low) begin at or before the tile, rows [high, rows) after it
        middle = (low + high) // 2
        if tl.load(query_starts + middle) // BLOCK_TOKENS + middle <= tile:
            low = middle + 1
        else:
            high = middle
    row = low - 1
    return row, tile - (tl.load(query_starts + row) // BLOCK_TOKENS + row)


@jit
def attend(
    q: tl.tensor,  # [BLOCK_M, BLOCK_DIM]
    positions: tl.tensor,  # [BLOCK_M], of the queries
    first_key: tl.tensor,  # positions [first_key, last_key) are read; no other slot or block-table entry is touched
    last_key: tl.tensor,
    peak: tl.tensor,  # fp32 [BLOCK_M], the highest score so far, in powers of two; finite
    total: tl.tensor,  # fp32 [BLOCK_M], the sum of 2 ** (score - peak)
    weighted: tl.tensor,  # fp32 [BLOCK_M, BLOCK_DIM], the values' sum under the same weights
    k_cache: tl.tensor,  # of this KV head
    v_cache: tl.tensor,
    block_table: tl.tensor,  # of this row
    k_block_stride: tl.tensor,
    k_slot_stride: tl.tensor,
    v_block_stride: tl.tensor,
    v_slot_stride: tl.tensor,
    scale: tl.tensor,
    sliding_window: tl.tensor,
    softcap: tl.tensor,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Fold the keys [first_key, last_key) into the running softmax state; partial states of disjoint ranges merge."""
    LOG2_E: tl.constexpr = 1.4426950408889634
    dims = tl.arange(0, BLOCK_DIM)
    for tile_start in tl.range(first_key // BLOCK_KEYS * BLOCK_KEYS, last_key, BLOCK_KEYS):
        keys = tile_start + tl.arange(0, BLOCK_KEYS)
        stored = (keys >= first_key) & (keys < last_key)
        block = tl.load(block_table + keys // BLOCK_SIZE, mask=stored, other=0).to(tl.int64)
        offset = keys % BLOCK_SIZE
        k_slots = block * k_block_stride + offset * k_slot_stride
        v_slots = block * v_block_stride + offset * v_slot_stride
        k = tl.load(
            k_cache + k_slots[None, :] + dims[:, None],
            mask=stored[None, :] & (dims < HEAD_DIM)[:, None],
            other=0.0,
        )
        v = tl.load(
            v_cache + v_slots[:, None] + dims[None, :],
            mask=stored[:, None] & (dims < HEAD_DIM)[None, :],
            other=0.0,
        )

        scores = tl.dot(q, k, input_precision="ieee")
        if HAS_SOFTCAP:
            decay = tl.exp2(tl.abs(scores) * (-2.0 * LOG2_E * scale / softcap))  # in (0, 1], so tanh cannot overflow
            scores = tl.where(scores < 0, -1.0, 1.0) * (1.0 - decay) / (1.0 + decay) * (softcap * LOG2_E)
        else:
            scores = scores * (scale * LOG2_E)
        visible = stored[None, :] & (keys[None, :] <= positions[:, None])
        if HAS_WINDOW:
            visible = visible & (keys[None, :] > positions[:, None] - sliding_window)
        scores = tl.where(visible, scores, float("-inf"))

        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_peak[:, None])
        decline = tl.exp2(peak - new_peak)
        total = total * decline + tl.sum(weights, axis=1)
        weighted = tl.dot(weights.to(v.dtype), v, weighted * decline[:, None], input_precision="ieee")
        peak = new_peak
    return peak, total, weighted


# Step metadata may be slices of one buffer: specializing on their alignment or on a batch's size would recompile.
@jit(do_not_specialize=["block_tables", "query_starts", "context_lengths", "rows", "table_stride", "sliding_window"])
def paged_attention_kernel(
    out: tl.tensor,
    q: tl.tensor,
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    block_tables: tl.tensor,
    query_starts: tl.tensor,
    context_lengths: tl.tensor,
    sinks: tl.tensor,
    rows: tl.tensor,
    table_stride: tl.tensor,
    out_token_stride: tl.tensor,
    out_head_stride: tl.tensor,
    q_token_stride: tl.tensor,
    q_head_stride: tl.tensor,
    k_block_stride: tl.tensor,
    k_slot_stride: tl.tensor,
    k_head_stride: tl.tensor,
    v_block_stride: tl.tensor,
    v_slot_stride: tl.tensor,
    v_head_stride: tl.tensor,
    scale: tl.tensor,
    sliding_window: tl.tensor,
    softcap: tl.tensor,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    GROUP: tl.constexpr,  # query heads a KV head
    BLOCK_M: tl.constexpr,  # query tokens * group, padded
    BLOCK_KEYS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
) -> None:
    LOG2_E: tl.constexpr = 1.4426950408889634
    BLOCK_TOKENS: tl.constexpr = BLOCK_M // GROUP
    row, tile = row_of_tile(query_starts, rows, tl.program_id(0), BLOCK_TOKENS)
    row_start = tl.load(query_starts + row)
    query_length = tl.load(query_starts + row + 1) - row_start
    if tile * BLOCK_TOKENS >= query_length:
        return  # the grid is an upper bound, known without reading query_starts

    kv_head = tl.program_id(1)
    context = tl.load(context_lengths + row)
    m = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, BLOCK_DIM)
    tokens = tile * BLOCK_TOKENS + m // GROUP
    heads = (kv_head * GROUP + m % GROUP).to(tl.int64)
    filled = (m < BLOCK_TOKENS * GROUP) & (tokens < query_length)
    mask = filled[:, None] & (dims < HEAD_DIM)[None, :]
    token_index = (row_start + tokens).to(tl.int64)
    q_offsets = token_index * q_token_stride + heads * q_head_stride
    queries = tl.load(q + q_offsets[:, None] + dims[None, :], mask=mask, other=0.0)

    first_position = context - query_length + tile * BLOCK_TOKENS
    first_key = 0
    if HAS_WINDOW:
        first_key = tl.maximum(first_position - sliding_window + 1, 0)
    last_key = tl.minimum(first_position + BLOCK_TOKENS, context)

    peak = tl.full([BLOCK_M], -1.0e30, tl.float32)  # finite, so that a tile of hidden keys leaves no -inf - -inf
    total = tl.zeros([BLOCK_M], tl.float32)
    if HAS_SINKS:
        sink = tl.load(sinks + heads, mask=filled, other=0.0).to(tl.float32) * LOG2_E
        peak = tl.maximum(peak, sink)
        total = tl.exp2(sink - peak)
    _, total, weighted = attend(
        queries,
        context - query_length + tokens,
        first_key,
        last_key,
        peak,
        total,
        tl.zeros([BLOCK_M, BLOCK_DIM], tl.float32),
        k_cache + kv_head.to(tl.int64) * k_head_stride,
        v_cache + kv_head.to(tl.int64) * v_head_stride,
        block_tables + row.to(tl.int64) * table_stride,
        k_block_stride,
        k_slot_stride,
        v_block_stride,
        v_slot_stride,
        scale,
        sliding_window,
        softcap,
        HAS_WINDOW,
        HAS_SOFTCAP,
        BLOCK_SIZE,
        HEAD_DIM,
        BLOCK_KEYS,
        BLOCK_DIM,
    )
    out_offsets = token_index * out_token_stride + heads * out_head_stride
    tl.store(out + out_offsets[:, None] + dims[None, :], weighted / total[:, None], mask=mask)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How one launch is cut: rows of M (query tokens * group) and keys a tile, warps a program, pipeline stages."""

    block_m: int
    block_keys: int
    num_warps: int
    num_stages: int


# By padded head_dim. All fit the 99 KB of shared memory of consumer cards (sm_86, sm_89, sm_120).
DECODE = {32: Tiling(16, 64, 4, 3), 64: Tiling(16, 64, 4, 3), 128: Tiling(16, 64, 4, 2), 256: Tiling(16, 32, 4, 2)}
PREFILL = {32: Tiling(64, 64, 4, 3), 64: Tiling(64, 64, 4, 3), 128: Tiling(64, 64, 4, 2), 256: Tiling(64, 32, 8, 2)}
# IEEE products of float32 have no tensor cores: small tiles keep them in registers.
FLOAT32 = {32: Tiling(16, 32, 4, 2), 64: Tiling(16, 32, 4, 2), 128: Tiling(16, 32, 4, 2), 256: Tiling(16, 16, 4, 2)}


def tiling(head_dim: int, dtype: torch.dtype, group: int, *, tokens: int, rows: int) -> Tiling:
    """The tiling of a launch; a step counts as decode while its rows have two query tokens each or fewer, on average.

    Only host-side sizes are read, so a launch never waits for the device.
    """
    table = FLOAT32 if dtype == torch.float32 else DECODE if tokens <= 2 * rows else PREFILL
    chosen = table[max(32, next_power_of_two(head_dim))]
    block_m = max(chosen.block_m, next_power_of_two(group))
    return Tiling(block_m, chosen.block_keys, chosen.num_warps, chosen.num_stages)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    *,
    scale: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Attention of the packed rows, `[tokens, heads, head_dim]`; contract of `reference.paged_attention`.

    q and both caches share one dtype; head_dim is 32 to 256. `out`, written and returned where it is given, is shaped
    like q with a contiguous last dimension. Never waits for the device, so it can be captured in a CUDA graph.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    if len(q) and len(context_lengths):
        grid, arguments = launch(
            out,
            q if q.stride(-1) == 1 else q.contiguous(),
            k_cache,
            v_cache,
            block_tables,
            query_starts,
            context_lengths,
            scale=scale,
            sliding_window=sliding_window,
            softcap=softcap,
            sinks=sinks,
        )
        paged_attention_kernel[grid](**arguments)
    return out


def launch(
    out: Tensor,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    *,
    scale: float,
    sliding_window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid and the arguments of one launch, reading shapes and strides alone."""
    tokens, heads, head_dim = q.shape
    rows, kv_heads = len(context_lengths), k_cache.shape[2]
    group = heads // kv_heads
    tiles = tiling(head_dim, q.dtype, group, tokens=tokens, rows=rows)
    arguments = {
        "out": out,
        "q": q,
        "k_cache": k_cache,
        "v_cache": v_cache,
        "block_tables": block_tables,
        "query_starts": query_starts,
        "context_lengths": context_lengths,
        "sinks": sinks,
        "rows": rows,
        "table_stride": block_tables.stride(0),
        "out_token_stride": out.stride(0),
        "out_head_stride": out.stride(1),
        "q_token_stride": q.stride(0),
        "q_head_stride": q.stride(1),
        "k_block_stride": k_cache.stride(0),
        "k_slot_stride": k_cache.stride(1),
        "k_head_stride": k_cache.stride(2),
        "v_block_stride": v_cache.stride(0),
        "v_slot_stride": v_cache.stride(1),
        "v_head_stride": v_cache.stride(2),
        "scale": scale,
        "sliding_window": sliding_window or 0,
        "softcap": softcap or 0.0,
        "HAS_WINDOW": sliding_window is not None,
        "HAS_SOFTCAP": softcap is not None,
        "HAS_SINKS": sinks is not None,
        "BLOCK_SIZE": k_cache.shape[1],
        "HEAD_DIM": head_dim,
        "GROUP": group,
        "BLOCK_M": tiles.block_m,
        "BLOCK_KEYS": tiles.block_keys,
        "BLOCK_DIM": max(32, next_power_of_two(head_dim)),
        "num_warps": tiles.num_warps,
        "num_stages": tiles.num_stages,
        "enable_fp_fusion": True,  # said outright: Triton's default changes in 3.10
    }
    return (tokens // (tiles.block_m // group) + rows, kv_heads), arguments
