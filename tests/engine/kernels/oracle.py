"""The slow oracle that the kernels are tested against: torch alone, float64, one row at a time."""

import torch
from torch import Tensor

from engine.kernels.attention.options import Options


def store_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """What `engine.kernels.store_kv` must do."""
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
    """What `engine.kernels.attention.paged_attention` must give; `block_tables` are the rows' own, in their order.

    Computed in float64 and rounded once, to q's dtype; pass `q.double()` to have it unrounded.
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
