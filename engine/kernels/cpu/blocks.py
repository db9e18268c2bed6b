"""Attention over the paged cache on a CPU: torch only, and no gathering of K or V.

Copying a context together before attending to it costs more than attending. So decode rows turn the work round: each
*block* of the pool is one batch entry, the queries of its owner are copied to it (they are small), and the blocks'
partial softmaxes are joined per row, as in flash-decoding. K and V are read once, where they lie. Blocks that the same
rows share are copied together after all, once for all these rows, and one product attends to them with every query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.kernels.attention.options import Options
from engine.kernels.attention.padded import NEVER, causal_attention
from engine.kernels.cpu.large_pages import Zeros


def plain_zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """By torch."""
    return torch.zeros(*shape, dtype=dtype)


def allocate_keys(
    blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype, zeros: Zeros = plain_zeros
) -> Tensor:
    """A K cache of logical shape `[blocks, block_size, kv_heads, head_dim]`, stored head first in each block."""
    return zeros((blocks, kv_heads, block_size, head_dim), dtype).transpose(1, 2)


def allocate_values(
    blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype, zeros: Zeros = plain_zeros
) -> Tensor:
    """A V cache of the same logical shape, each head's tokens side by side: `[blocks, kv_heads, head_dim, block_size]`.

    The products of decode attention then both sum over what lies side by side, which MKL does fastest for few queries.
    """
    return zeros((blocks, kv_heads, head_dim, block_size), dtype).permute(0, 3, 1, 2)


@dataclass(slots=True)
class Part:
    """Keys that are attended to together: `sets` of them, each for up to `owners` rows, worked out once a step.

    `rows` `[sets, owners]` are the rows that see each set; the number of rows, one past the last, stands for none.
    `position` `[sets, keys]` is each key's position in its rows, -1 where there is none. Keys are whole blocks:
    `blocks` `[sets, blocks]`, or None where set i is block i.
    """

    rows: Tensor
    position: Tensor
    blocks: Tensor | None

    def bias(self, last: Tensor, window: int | None) -> Tensor:
        """0 where a row sees a key and -inf where not, `[sets, 1, owners or 1, 1, keys]`. `last` `[rows]` is each
        row's own position."""
        seen = (self.position >= 0)[:, None]
        if window is not None:
            last = torch.cat([last, last.new_zeros(1)])[self.rows]
            seen = seen & (self.position[:, None] > (last - window)[:, :, None])
        bias = torch.zeros(seen.shape).masked_fill_(~seen, NEVER)
        return bias[:, None, :, None]

    def read(self, k_cache: Tensor, v_cache: Tensor) -> tuple[Tensor, Tensor]:
        """K `[sets * kv_heads, head_dim, keys]` and V `[sets * kv_heads, keys, head_dim]`; of single blocks where they
        lie, or copied together."""
        sets, keys = self.position.shape
        kv_heads, head_dim = k_cache.shape[2:]
        k, v = k_cache.transpose(1, 2), v_cache.permute(0, 2, 3, 1)  # as stored
        if self.blocks is None:
            k, v = k[:sets], v[:sets]
        else:
            k, v = k.index_select(0, self.blocks.flatten()), v.index_select(0, self.blocks.flatten())
            if self.blocks.shape[1] > 1:
                k = k.view(*self.blocks.shape, *k.shape[1:]).transpose(1, 2)
                v = v.view(*self.blocks.shape, *v.shape[1:]).permute(0, 2, 3, 1, 4)
        k, v = k.reshape(sets * kv_heads, keys, head_dim), v.reshape(sets * kv_heads, head_dim, keys)
        return k.transpose(1, 2), v.transpose(1, 2)


@dataclass(slots=True)
class DecodePlan:
    """What a step's decode rows attend to. `last` `[rows]` is each row's own position."""

    rows: int
    last: Tensor
    parts: list[Part]
    _biases: dict[int | None, list[Tensor]] = field(default_factory=dict)

    def biases(self, window: int | None) -> list[Tensor]:
        """The bias of each part, made once a step."""
        if window not in self._biases:
            self._biases[window] = [part.bias(self.last, window) for part in self.parts]
        return self._biases[window]

    def attend(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, options: Options) -> Tensor:
        """One query a row: q and out `[rows, heads, head_dim]`."""
        return decode_attention(q, k_cache, v_cache, self, options)


def plan_decode(tables: list[list[int]], lengths: list[int], block_size: int) -> DecodePlan:
    """From each row's block table and its context length, this step's token included. Rows that share a block read it
    once where it has the same place in their tables."""
    rows = len(tables)
    used = [table[: -(-length // block_size)] for table, length in zip(tables, lengths, strict=True)]
    flat = torch.tensor([block for table in used for block in table])
    counts = torch.tensor([len(table) for table in used])
    owner = torch.repeat_interleave(torch.arange(rows), counts)
    logical = torch.arange(len(flat)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    length = torch.tensor(lengths)
    parts = []
    if len(flat) != len(flat.unique()):
        shared = _shared_blocks(used)
        parts = _shared_parts(shared, rows, block_size)
        each = int(flat.max()) + 1  # places of a table, so that a number tells both
        pairs = torch.tensor([place * each + block for places in shared.values() for place, block in places])
        own = torch.isin(logical * each + flat, pairs, invert=True)
        flat, owner, logical = flat[own], owner[own], logical[own]
    at = torch.arange(block_size)
    position = logical[:, None] * block_size + at
    position = torch.where(position < length[owner][:, None], position, -1)
    span = int(flat.max()) + 1  # the row that joined last has a block of its own
    # Blocks of others or of none may lie between: reading past them is cheaper than copying, up to half as many.
    if len(flat) * 3 < span * 2 or len(flat) != len(flat.unique()):
        parts.append(Part(owner[:, None], position, flat[:, None]))
    else:
        all_owner = torch.full((span, 1), rows)
        all_owner[flat, 0] = owner
        all_position = torch.full((span, block_size), -1)
        all_position[flat] = position
        parts.append(Part(all_owner, all_position, None))
    return DecodePlan(rows, length - 1, parts)


def _shared_blocks(tables: list[list[int]]) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """The blocks of each set of two rows or more that share them, as pairs of a place in the rows' tables and a
    block."""
    owners: dict[tuple[int, int], list[int]] = {}
    for row, table in enumerate(tables):
        for place in enumerate(table):
            owners.setdefault(place, []).append(row)
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for place, rows in owners.items():
        if len(rows) > 1:
            groups.setdefault(tuple(rows), []).append(place)
    return groups


def _shared_parts(groups: dict[tuple[int, ...], list[tuple[int, int]]], rows: int, block_size: int) -> list[Part]:
    """Sets of about the same number of rows and of blocks are one part, filled up to the largest of them."""
    alike: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for owners, places in groups.items():
        alike.setdefault((len(owners).bit_length(), len(places).bit_length()), []).append(owners)
    parts = []
    for sets in alike.values():
        most_rows = max(map(len, sets))
        most_blocks = max(len(groups[owners]) for owners in sets)
        seen_by = torch.tensor([[*owners, *[rows] * (most_rows - len(owners))] for owners in sets])
        filled = [groups[owners] + [(-1, 0)] * (most_blocks - len(groups[owners])) for owners in sets]
        logical, blocks = torch.tensor(filled).unbind(-1)
        position = logical[:, :, None] * block_size + torch.arange(block_size)
        position = position.masked_fill(logical[:, :, None] < 0, -1).flatten(1)
        parts.append(Part(seen_by, position, blocks))
    return parts


def decode_attention(q: Tensor, k_cache: Tensor, v_cache: Tensor, plan: DecodePlan, options: Options) -> Tensor:
    """One query a row: q and out `[rows, heads, head_dim]`."""
    softcap, sinks = options.softcap, options.sinks
    rows, heads, head_dim = q.shape
    kv_heads = k_cache.shape[2]
    group = heads // kv_heads
    padded = torch.cat([q * options.scale, q.new_zeros(1, heads, head_dim)])
    highest = torch.full((rows + 1, heads), torch.finfo(torch.float32).min)
    read: list[tuple[Tensor, Tensor]] = []
    for part, bias in zip(plan.parts, plan.biases(options.window), strict=True):
        (sets, owners), keys = part.rows.shape, part.position.shape[1]
        k, v = part.read(k_cache, v_cache)
        queries = padded.index_select(0, part.rows.flatten()).view(sets, owners, kv_heads, group, head_dim)
        queries = queries.transpose(1, 2).reshape(sets * kv_heads, owners * group, head_dim)
        scores = torch.bmm(queries, k).float().view(sets, kv_heads, owners, group, keys)
        if softcap is not None:
            scores = scores.div_(softcap).tanh_().mul_(softcap)
        scores.add_(bias)
        by_row = part.rows.view(-1, 1).expand(-1, heads)
        highest.scatter_reduce_(0, by_row, _by_row(scores.amax(-1)), "amax")
        read.append((scores, v))
    if sinks is not None:
        highest = torch.maximum(highest, sinks.float())
    total = torch.zeros(rows + 1, heads) if sinks is None else (sinks.float() - highest).exp()
    out = torch.zeros(rows + 1, heads, head_dim)
    for part, (scores, v) in zip(plan.parts, read, strict=True):
        sets, _, owners, _, keys = scores.shape
        flat_rows = part.rows.flatten()
        peak = highest.index_select(0, flat_rows).view(sets, owners, kv_heads, group, 1).transpose(1, 2)
        weights = scores.sub_(peak).exp_()
        total.index_add_(0, flat_rows, _by_row(weights.sum(-1)))
        found = torch.bmm(weights.view(sets * kv_heads, owners * group, keys).to(v.dtype), v).float()
        out.index_add_(0, flat_rows, _by_row(found.view(sets, kv_heads, owners, group, head_dim)))
    return (out[:rows] / total[:rows, :, None]).to(q.dtype)


def _by_row(values: Tensor) -> Tensor:
    """`[sets, kv_heads, owners, group, ...]` as `[sets * owners, heads, ...]`."""
    sets, kv_heads, owners, group, *rest = values.shape
    return values.transpose(1, 2).reshape(sets * owners, kv_heads * group, *rest)


@dataclass(slots=True)
class PrefillRow:
    """A row of more than one token: its tokens [start, end) in the packed step, and its context, those included.
    `table` are the blocks of a context that began in an earlier step, None when it begins here."""

    start: int
    end: int
    context: int
    table: Tensor | None
    _biases: dict[tuple[int | None, torch.dtype], Tensor] = field(default_factory=dict)

    def bias(self, window: int | None, dtype: torch.dtype) -> Tensor | None:
        """0 where a token sees a key and -inf where not, `[tokens, context]`; None where plain causality is all."""
        if window is not None and window >= self.context:
            window = None
        first = self.context - (self.end - self.start)
        if window is None and first == 0:
            return None
        if (window, dtype) not in self._biases:
            at = torch.arange(first, self.context)[:, None]
            keys = torch.arange(self.context)
            seen = keys <= at if window is None else (keys <= at) & (keys > at - window)
            self._biases[window, dtype] = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, NEVER)
        return self._biases[window, dtype]


def prefill_attention(q: Tensor, k: Tensor, v: Tensor, row: PrefillRow, options: Options) -> Tensor:
    """A row's tokens over its context. q `[tokens, heads, head_dim]`, out as q; k and v `[context, kv_heads, head_dim]`
    are those of the whole context."""
    query, key, value = (t.transpose(0, 1)[None] for t in (q, k, v))
    return causal_attention(query, key, value, row.bias(options.window, q.dtype), options)[0].transpose(0, 1)


def gather_context(cache: Tensor, table: Tensor, length: int) -> Tensor:
    """A row's K or V, `[length, kv_heads, head_dim]`, copied together from its blocks."""
    blocks = cache.transpose(1, 2).index_select(0, table)
    return blocks.transpose(1, 2).reshape(-1, *cache.shape[2:])[:length]
