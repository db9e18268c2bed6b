"""A step's rows on the device, packed, and how the work on them is cut; the host reads none of it back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engine.kernels.attention.splits import ITEM, Partials, merge_shape, plan_splits
from engine.kernels.attention.tilings import Rows, Tiling
from engine.kernels.jit import next_power_of_two

SHORT = 8  # query tokens of a short row, at most: a decode row has 1, a verification row a few
LEAST_KEYS = 128  # that are worth a program of their own
NEVER = 2**28  # key tiles, four times which are an int32


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a step's rows, which one launch serves: they own at most `tokens` query tokens, each likely `queries`."""

    kind: Rows
    tokens: int
    queries: int
    query_starts: Tensor
    context_lengths: Tensor
    block_tables: Tensor
    table_rows: Tensor | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The work items of a part's rows, room for what is merged, and how all layers' launches are cut."""

    items: Tensor  # int32 [as many as there can be, ITEM], `plan_splits_kernel`'s
    partials: Partials | None
    tiles: Tiling
    shape: tuple[int, ...]  # the attention kernel's constants


@dataclass(slots=True)
class PackedRows:
    """A step's rows. How their contexts are split is planned on the device once a step per kind of layer and kept here:
    so each step has an object of its own, made anew inside a capture, and the tensors' values stay while it is used.

    Row r's query tokens are `[query_starts[r], query_starts[r + 1])`, possibly none.
    """

    query_starts: Tensor  # int32 [rows + 1]
    context_lengths: Tensor  # int32 [rows], this step's tokens included
    # int32 [tables, max_blocks]: entry i holds positions [i * block_size, (i + 1) * block_size); those that hold none
    # that some query of the row may see are never read
    block_tables: Tensor
    table_rows: Tensor | None = None  # int32 [rows]: which table is each row's; None: row r's is table r
    short: int = 0  # the first `short` rows have at most SHORT query tokens each
    short_queries: int = 1  # that a short row is likely to have: tiles are chosen by it, no result depends on it
    plans: dict[Any, Plan] = field(default_factory=dict, repr=False)
    _parts: list[Part] | None = field(default=None, repr=False)

    def parts(self, tokens: int) -> list[Part]:
        """The short rows and the others, as far as there are any, of a step of `tokens` query tokens."""
        if self._parts is None:
            rows, short = len(self.context_lengths), self.short
            self._parts = []
            if short:
                queries = max(self.short_queries, -(-tokens // rows) if short == rows else 1)
                self._parts.append(self._part(Rows.SHORT, 0, short, min(tokens, short * SHORT), min(queries, SHORT)))
            if short < rows:
                self._parts.append(self._part(Rows.LONG, short, rows, tokens, tokens))
        return self._parts

    def _part(self, kind: Rows, first: int, last: int, tokens: int, queries: int) -> Part:
        lengths = self.query_starts[first : last + 1], self.context_lengths[first:last]
        if self.table_rows is None:
            return Part(kind, tokens, queries, *lengths, self.block_tables[first:last], None)
        return Part(kind, tokens, queries, *lengths, self.block_tables, self.table_rows[first:last])


def plan(
    part: Part, q: Tensor, k_cache: Tensor, stored: int, sliding_window: int | None, tiles: Tiling, processors: int
) -> Plan:
    """How a part's rows are cut into work items, with bounds that hold whatever their lengths are; the device counts
    them. `stored` KV heads lie in the cache, which may be read as more."""
    (_, heads, head_dim), (_, block_size, kv_heads, _) = q.shape, k_cache.shape
    rows, short, group = len(part.context_lengths), part.kind is Rows.SHORT, heads // kv_heads
    block_tokens, block_dim = tiles.block_m // group, max(32, next_power_of_two(head_dim))
    query_tiles = min(part.tokens, part.tokens // block_tokens + rows)
    if short:
        query_tiles = min(query_tiles, rows * -(-SHORT // block_tokens))

    target = processors * tiles.programs // kv_heads
    least = -(-LEAST_KEYS // tiles.block_keys)
    most = part.block_tables.shape[1] * block_size
    if sliding_window is not None:
        most = min(most, sliding_window + (SHORT if short else part.tokens) - 1)
    splits = most > least * tiles.block_keys and target > (1 if short else part.tokens // block_tokens)

    def room(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(size, dtype=dtype, device=q.device)

    partials = None
    if splits:
        # Splits add less than `target` items, and each of the tiles that are split at least one.
        states = (2 * (target - 1), kv_heads, tiles.block_m)
        partials = Partials(room(*states, head_dim), room(*states), room(*states), room(*states[:2], dtype=torch.int32))
    items = room(query_tiles + (target - 1 if splits else 0), ITEM, dtype=torch.int32)
    sizes = max(1, target), least if splits else NEVER, block_tokens, tiles.block_keys
    arrived = None if partials is None else partials.arrived
    plan_splits(items, part.query_starts, part.context_lengths, part.table_rows, arrived, sliding_window, *sizes)
    shape = block_size, head_dim, kv_heads, stored, group, tiles.block_m, tiles.block_keys, block_dim
    return Plan(items, partials, tiles, (*shape, *merge_shape(tiles, part.kind, group, block_dim)))
