"""Attention over the paged cache on a CPU: torch only, and no gathering of K or V.

Copying a context together before attending to it costs more than attending. So decode rows turn the work round: each
*block* of the pool is one batch entry, the queries of its owner are copied to it (they are small), and the blocks'
partial softmaxes are joined per row, as in flash-decoding. K and V are read once, where they lie.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

NEVER = float("-inf")


def allocate_keys(blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> Tensor:
    """A K cache of logical shape `[blocks, block_size, kv_heads, head_dim]`, stored head first in each block."""
    return torch.zeros(blocks, kv_heads, block_size, head_dim, dtype=dtype).transpose(1, 2)


def allocate_values(blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> Tensor:
    """A V cache of the same logical shape, each head's tokens side by side: `[blocks, kv_heads, head_dim, block_size]`.

    The products of decode attention then both sum over what lies side by side, which MKL does fastest for few queries.
    """
    return torch.zeros(blocks, kv_heads, head_dim, block_size, dtype=dtype).permute(0, 3, 1, 2)


def store_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, blocks: Tensor, offsets: Tensor) -> None:
    """Writes k, v `[tokens, kv_heads, head_dim]` to (block, offset) of the caches."""
    k_cache.index_put_((blocks, offsets), k)
    v_cache.index_put_((blocks, offsets), v)


@dataclass(slots=True)
class DecodePlan:
    """The blocks that a step's decode rows attend to, worked out once a step and used by every layer.

    `blocks` are read as the range [0, span) when `index` is None, else by that index. `owner` `[entries]` is the row
    of each; rows of no use to this step have owner `rows`, one past the last. `position` `[entries, block_size]` is
    each key's position in its row, -1 where there is none. `last` `[rows]` is each row's own position.
    """

    rows: int
    span: int
    index: Tensor | None
    owner: Tensor
    position: Tensor
    last: Tensor

    def bias(self, window: int | None) -> Tensor:
        """0 where a key is seen and -inf where not, `[entries, 1, 1, block_size]`."""
        seen = self.position >= 0
        if window is not None:
            last = torch.cat([self.last, self.last.new_zeros(1)])[self.owner]
            seen &= self.position > (last - window)[:, None]
        zero = torch.zeros(seen.shape)
        return zero.masked_fill_(~seen, NEVER)[:, None, None, :]


def plan_decode(tables: list[list[int]], lengths: list[int], block_size: int) -> DecodePlan:
    """From each row's block table and its context length, this step's token included."""
    rows = len(tables)
    used = [table[: -(-length // block_size)] for table, length in zip(tables, lengths, strict=True)]
    flat = torch.tensor([block for table in used for block in table])
    counts = torch.tensor([len(table) for table in used])
    owner = torch.repeat_interleave(torch.arange(rows), counts)
    logical = torch.arange(len(flat)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    length = torch.tensor(lengths)
    position = logical[:, None] * block_size + torch.arange(block_size)
    position = torch.where(position < length[owner][:, None], position, -1)
    span = int(flat.max()) + 1
    # A block given to another row or to none since: reading past it is cheaper than copying, up to a point.
    if len(flat) * 2 < span or len(flat) != len(flat.unique()):
        return DecodePlan(rows, span, flat, owner, position, length - 1)
    all_owner = torch.full((span,), rows)
    all_owner[flat] = owner
    all_position = torch.full((span, block_size), -1)
    all_position[flat] = position
    return DecodePlan(rows, span, None, all_owner, all_position, length - 1)


def decode_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    plan: DecodePlan,
    bias: Tensor,
    *,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """One query a row: q `[rows, heads, head_dim]` to out of the same shape. `bias` is the plan's for this window."""
    rows, heads, head_dim = q.shape
    block_size, kv_heads = k_cache.shape[1:3]
    group = heads // kv_heads
    k, v = k_cache.transpose(1, 2), v_cache.permute(0, 2, 3, 1)  # as stored
    if plan.index is None:
        k, v = k[: plan.span], v[: plan.span]
    else:
        k, v = k.index_select(0, plan.index), v.index_select(0, plan.index)
    entries = k.shape[0]
    owner = plan.owner
    padded = torch.cat([q, q.new_zeros(1, heads, head_dim)])
    queries = padded.index_select(0, owner).view(entries * kv_heads, group, head_dim)
    scores = torch.bmm(queries, k.reshape(entries * kv_heads, block_size, head_dim).transpose(1, 2)).float()
    scores = scores.view(entries, kv_heads, group, block_size).mul_(scale)
    if softcap is not None:
        scores = scores.div_(softcap).tanh_().mul_(softcap)
    scores.add_(bias)
    by_row = owner[:, None].expand(entries, heads)
    highest = scores.new_full((rows + 1, heads), torch.finfo(torch.float32).min)
    highest.scatter_reduce_(0, by_row, scores.amax(-1).view(entries, heads), "amax")
    if sinks is not None:
        highest = torch.maximum(highest, sinks.float())
    weights = scores.sub_(highest.index_select(0, owner).view(entries, kv_heads, group, 1)).exp_()
    total = scores.new_zeros(rows + 1, heads)
    total.index_add_(0, owner, weights.sum(-1).view(entries, heads))
    if sinks is not None:
        total += (sinks.float() - highest).exp()
    parts = torch.bmm(
        weights.view(entries * kv_heads, group, block_size).to(v.dtype),
        v.reshape(entries * kv_heads, head_dim, block_size).transpose(1, 2),
    ).view(entries, heads, head_dim)
    out = scores.new_zeros(rows + 1, heads, head_dim)
    out.index_add_(0, owner, parts.float())
    return (out[:rows] / total[:rows, :, None]).to(q.dtype)


def prefill_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """One row's queries at the end of its context, causal.

    q `[tokens, heads, head_dim]`; k, v `[context, kv_heads, head_dim]`, this step's tokens last; out as q.
    """
    tokens, heads, head_dim = q.shape
    context, kv_heads = k.shape[:2]
    group = heads // kv_heads
    first = context - tokens
    masked = window is not None and context > window
    query = q.transpose(0, 1)
    key = k.transpose(0, 1)
    value = v.transpose(0, 1)
    if softcap is None and sinks is None and not masked and first == 0:
        return scaled_dot_product_attention(
            query[None], key[None], value[None], is_causal=tokens > 1, scale=scale, enable_gqa=group > 1
        )[0].transpose(0, 1)
    at = torch.arange(first, context)[:, None]
    keys = torch.arange(context)[None]
    seen = keys <= at
    if masked:
        assert window is not None
        seen &= keys > at - window
    if softcap is None and sinks is None:
        return scaled_dot_product_attention(
            query[None], key[None], value[None], attn_mask=seen, scale=scale, enable_gqa=group > 1
        )[0].transpose(0, 1)
    grouped = query.reshape(kv_heads, group * tokens, head_dim)
    scores = torch.bmm(grouped, key.transpose(1, 2)).float().view(kv_heads, group, tokens, context) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.masked_fill(~seen, NEVER)
    if sinks is not None:
        extra = sinks.float().view(kv_heads, group, 1, 1).expand(-1, -1, tokens, 1)
        weights = torch.cat([scores, extra], -1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    out = torch.bmm(weights.to(v.dtype).reshape(kv_heads, group * tokens, context), value)
    return out.view(heads, tokens, head_dim).transpose(0, 1)


def gather_context(cache: Tensor, table: Tensor, length: int) -> Tensor:
    """A row's K or V, `[length, kv_heads, head_dim]`, copied together from its blocks."""
    blocks = cache.transpose(1, 2).index_select(0, table)
    return blocks.transpose(1, 2).reshape(-1, *cache.shape[2:])[:length]
