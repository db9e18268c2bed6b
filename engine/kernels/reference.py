"""The slow oracle that every other kernel is tested against: torch alone, float64, one row at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.options import Options


def store_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Write each token's key and value into its slot of the cache, in place.

    k, v: `[tokens, kv_heads, head_dim]`. k_cache, v_cache: `[blocks, block_size, kv_heads, head_dim]`, any strides,
    last dimension contiguous. slots: int64 `[tokens]`, block * block_size + offset; a negative slot is skipped.
    """
    block_size = k_cache.shape[1]
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            k_cache[slot // block_size, slot % block_size] = k[token].to(k_cache.dtype)
            v_cache[slot // block_size, slot % block_size] = v[token].to(v_cache.dtype)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    options: Options,
) -> Tensor:
    """Causal attention of packed query tokens over a paged KV cache; returns `[tokens, heads, head_dim]` like q.

    q: `[tokens, heads, head_dim]`; row r owns the tokens `[query_starts[r], query_starts[r + 1])`, possibly none.
    k_cache, v_cache: `[blocks, block_size, kv_heads, head_dim]`, any strides, last dimension contiguous; query head h
    reads KV head h // (heads / kv_heads).
    block_tables: int32 `[rows, max_blocks]`; entry i holds positions `[i * block_size, (i + 1) * block_size)`.
    Entries that hold no position some query of the row may see are arbitrary (-1, say) and never read.
    query_starts: int32 `[rows + 1]`. context_lengths: int32 `[rows]`, the tokens known, this step's included, whose
    keys and values are already stored: query j of a row is at position context_length - query_length + j.

    Output of tokens past `query_starts[-1]`, which belong to no row, is unspecified. Computed in float64 and rounded
    once, to q's dtype; pass `q.double()` to have it unrounded.
    """
    out = torch.zeros_like(q)
    sliding_window, softcap, sinks = options.window, options.softcap, options.sinks
    block_size = k_cache.shape[1]
    group = q.shape[1] // k_cache.shape[2]
    starts = query_starts.tolist()
    for row, context in enumerate(context_lengths.tolist()):
        tokens = slice(starts[row], starts[row + 1])
        first = context - (tokens.stop - tokens.start)
        if first == context:
            continue
        first_key = 0 if sliding_window is None else max(0, first - sliding_window + 1)
        queries = torch.arange(first, context, device=q.device)[:, None]
        keys = torch.arange(first_key, context, device=q.device)
        blocks, offsets = block_tables[row, keys // block_size].long(), keys % block_size
        k = k_cache[blocks, offsets].double().repeat_interleave(group, dim=1)
        v = v_cache[blocks, offsets].double().repeat_interleave(group, dim=1)

        scores = torch.einsum("qhd,khd->hqk", q[tokens].double(), k) * options.scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        visible = keys <= queries
        if sliding_window is not None:
            visible &= keys > queries - sliding_window
        scores = scores.masked_fill(~visible, -torch.inf)
        if sinks is not None:
            sink = sinks.double()[:, None, None].expand(-1, scores.shape[1], 1)
            scores = torch.cat([scores, sink], dim=-1)
        weights = torch.softmax(scores, dim=-1)[..., : len(keys)]
        out[tokens] = torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype)
    return out
