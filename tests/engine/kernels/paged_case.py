"""Random paged-attention problems, poisoned wherever a kernel has no business reading, and their check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.kernels.attention.options import Options
from engine.kernels.attention.packed_rows import SHORT, PackedRows
from tests.engine.kernels import oracle

TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}  # of values near one


@dataclass(frozen=True)
class Shape:
    """What a problem looks like; rows are pairs of (query tokens, context length)."""

    rows: Sequence[tuple[int, int]]
    kv_heads: int = 2
    group: int = 2
    head_dim: int = 64
    block_size: int = 16
    sliding_window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    dtype: torch.dtype = torch.float32
    heads_first: bool = False  # the cache is stored as [blocks, kv_heads, block_size, head_dim]
    latent: bool = False  # one cache is K and V
    table_rows: bool = False  # tables lie in another order than the rows, among others


@dataclass(frozen=True)
class Case:
    """One problem. The oracle reads `tables`, the rows' own; a launch `block_tables`, by `table_rows`."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    tables: Tensor
    query_starts: Tensor
    context_lengths: Tensor
    block_tables: Tensor
    table_rows: Tensor | None
    short: int
    options: Options

    def rows(self, short: int | None = None) -> PackedRows:
        """The rows as a step would have them; all that may be are short unless `short` says otherwise."""
        return PackedRows(
            self.query_starts,
            self.context_lengths,
            self.block_tables,
            self.table_rows,
            self.short if short is None else short,
        )

    def run(self, paged_attention: Callable[..., Tensor], rows: PackedRows | None = None, **given: Any) -> Tensor:
        """The kernel's output, NaN where it wrote nothing."""
        out = torch.full_like(self.q, torch.nan)
        rows = rows or self.rows()
        assert paged_attention(self.q, self.k_cache, self.v_cache, rows, self.options, **given, out=out) is out
        return out

    def expected(self) -> Tensor:
        q = self.q.double()
        metadata = (self.tables, self.query_starts, self.context_lengths)
        return oracle.paged_attention(q, self.k_cache, self.v_cache, *metadata, self.options)

    def check(self, paged_attention: Callable[..., Tensor], short: int | None = None, **given: Any) -> PackedRows:
        """Fails unless the kernel agrees with the oracle in every element of a NaN-poisoned output. Gives the rows,
        which hold the plans that were made."""
        tolerance, rows = TOLERANCE[self.q.dtype], self.rows(short)
        out = self.run(paged_attention, rows, **given)
        torch.testing.assert_close(out.double(), self.expected(), rtol=tolerance, atol=tolerance)
        return rows


def make_case(shape: Shape, seed: int, device: str = "cpu") -> Case:
    """The problem of this shape and seed: every slot that no query may see is NaN, every spare table entry -1."""
    random = torch.Generator().manual_seed(seed)
    tokens = sum(queries for queries, _ in shape.rows)
    needed = [-(-context // shape.block_size) for _, context in shape.rows]
    pool = torch.randperm(sum(needed) + 3, generator=random)
    k_cache, v_cache = (_empty_cache(shape, len(pool)) for _ in range(2))
    block_tables = torch.full((len(shape.rows), max(needed, default=0) + 2), -1, dtype=torch.int32)
    taken = 0
    for row, (queries, context) in enumerate(shape.rows):
        first = 0
        if shape.sliding_window is not None:
            first = min(context, max(0, context - queries - shape.sliding_window + 1))
        if queries == 0:
            first = context
        positions = torch.arange(first, context)
        used = slice(first // shape.block_size, needed[row])
        if queries:
            block_tables[row, used] = pool[taken + used.start : taken + used.stop].int()
        taken += needed[row]
        blocks, offsets = block_tables[row, positions // shape.block_size].long(), positions % shape.block_size
        for cache in (k_cache, v_cache):
            stored = torch.randn(len(positions), shape.kv_heads, shape.head_dim, generator=random)
            cache[blocks, offsets] = stored.to(shape.dtype)
    heads = shape.kv_heads * shape.group
    q = torch.randn(tokens, heads, shape.head_dim, generator=random) * 2  # uneven weights: an average hides mistakes
    query_starts = torch.tensor([0, *(queries for queries, _ in shape.rows)]).cumsum(0).int()
    context_lengths = torch.tensor([context for _, context in shape.rows], dtype=torch.int32)
    sinks = torch.randn(heads, generator=random).to(shape.dtype).to(device) if shape.sinks else None
    short = 0
    while short < len(shape.rows) and shape.rows[short][0] <= SHORT:
        short += 1
    launched, table_rows = block_tables, None
    if shape.table_rows:
        table_rows = torch.randperm(2 * len(shape.rows), generator=random)[: len(shape.rows)].int()
        launched = torch.full((2 * len(shape.rows), block_tables.shape[1]), -1, dtype=torch.int32)
        launched[table_rows] = block_tables
    case = Case(
        *(
            _on(device, tensor)
            for tensor in (q.to(shape.dtype), k_cache, v_cache, block_tables, query_starts, context_lengths, launched)
        ),
        None if table_rows is None else table_rows.to(device),
        short,
        Options(shape.head_dim**-0.5, shape.sliding_window, shape.softcap, sinks),
    )
    return replace(case, v_cache=case.k_cache) if shape.latent else case


def random_shape(seed: int, dtype: torch.dtype, *, most_rows: int = 4, longest: int = 90) -> Shape:
    """A shape drawn from all that the engine serves: mixed prefill, chunk, decode and empty rows."""
    random = torch.Generator().manual_seed(seed)

    def pick(*choices: Any) -> Any:
        return choices[int(torch.randint(len(choices), (), generator=random))]

    rows = []
    for _ in range(pick(*range(1, most_rows + 1))):
        context = 1 + int(torch.randint(longest, (), generator=random))
        rows.append((min(context, pick(1, 1, 0, context, 1 + context // 3)), context))
    return Shape(
        rows=rows if any(queries for queries, _ in rows) else [(1, 1)],
        kv_heads=pick(1, 2, 3),
        group=pick(1, 2, 3, 4, 5, 6, 7, 8),
        head_dim=pick(32, 64, 80, 96, 128, 256),
        block_size=pick(16, 32, 64),
        sliding_window=pick(None, None, 1, 7, 33),
        softcap=pick(None, None, 5.0),
        sinks=pick(False, True),
        dtype=dtype,
        heads_first=pick(False, True),
        table_rows=pick(False, True),
    )


@dataclass(frozen=True)
class Store:
    """One problem for `store_kv`: its arguments."""

    arguments: tuple[Tensor, ...]

    def check(self, store_kv: Callable[..., None]) -> None:
        """Fails unless both caches end as the oracle leaves them, in every slot, bit for bit."""
        k, v, k_cache, v_cache, slots = self.arguments
        expected = [k_cache.clone(), v_cache.clone()]
        oracle.store_kv(k, v, *expected, slots)
        store_kv(k, v, k_cache, v_cache, slots)
        for cache, right in zip((k_cache, v_cache), expected, strict=True):
            torch.testing.assert_close(cache, right, rtol=0, atol=0, equal_nan=True)


def make_store(seed: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Store:
    """Random keys and values, a third of them without a slot, for a cache of random layout full of NaN."""
    random = torch.Generator().manual_seed(seed)

    def pick(*choices: Any) -> Any:
        return choices[int(torch.randint(len(choices), (), generator=random))]

    shape = Shape(
        rows=(),
        kv_heads=pick(1, 3, 5, 8, 32),
        head_dim=pick(32, 80, 96, 128, 256),
        block_size=pick(16, 32, 64),
        dtype=dtype,
        heads_first=pick(False, True),
    )
    tokens, blocks = pick(1, 3, 17), 3
    slots = torch.randperm(blocks * shape.block_size, generator=random)[:tokens]
    slots = (slots - slots[0]) % (blocks * shape.block_size)  # the first token takes slot 0
    slots[1:][torch.rand(tokens - 1, generator=random) < 1 / 3] = -1
    # As a model hands them over: a view [tokens, kv_heads, head_dim] of heads-first memory.
    k, v = torch.randn(2, shape.kv_heads, tokens, shape.head_dim, generator=random).to(dtype).transpose(1, 2)
    arguments = (k, v, _empty_cache(shape, blocks), _empty_cache(shape, blocks), slots)
    return Store(tuple(_on(device, tensor) for tensor in arguments))


def _empty_cache(shape: Shape, blocks: int) -> Tensor:
    if shape.heads_first:
        size = (blocks, shape.kv_heads, shape.block_size, shape.head_dim)
        return torch.full(size, torch.nan, dtype=shape.dtype).transpose(1, 2)
    return torch.full((blocks, shape.block_size, shape.kv_heads, shape.head_dim), torch.nan, dtype=shape.dtype)


def _on(device: str, tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device).copy_(tensor)
