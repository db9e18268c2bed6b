"""Runs a step over the paged KV cache, all its rows packed into one sequence. Owns the cache's tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import takewhile

import torch
from torch import Tensor

from engine.config import EngineConfig
from engine.kernels import cpu
from engine.models.attention import CpuLayout, PagedBatch
from engine.models.loading import LoadedModel
from engine.models.runner import Inputs, Runner, known_ids
from engine.plan import Row, StepPlan


class PagedRunner(Runner):
    """One model over `blocks` blocks of KV cache. Rows are packed into one sequence `[1, tokens]`; decode rows come
    first."""

    def __init__(self, model: LoadedModel, config: EngineConfig, blocks: int) -> None:
        super().__init__(model, config)
        self.block_size = config.block_size
        # With Triton's interpreter on, the GPU's kernels run on CPU tensors: so its path is tested without a GPU.
        self._triton = model.device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
        self.k_caches = [self._allocate(cpu.allocate_keys, blocks, *shape) for shape in model.layer_kv]
        self.v_caches = [self._allocate(cpu.allocate_values, blocks, *shape) for shape in model.layer_kv]

    def _allocate(self, on_cpu: Callable[..., Tensor], blocks: int, kv_heads: int, head_dim: int) -> Tensor:
        if not self._triton:
            return on_cpu(blocks, self.block_size, kv_heads, head_dim, self.model.dtype)
        return torch.zeros(blocks, self.block_size, kv_heads, head_dim, dtype=self.model.dtype, device=self._device)

    def _prepare(self, plan: StepPlan) -> Inputs:
        if plan.copies:
            self._copy_blocks(plan.copies)
        rows = plan.rows
        ids: list[int] = []
        positions: list[int] = []
        fed: list[Row] = []
        fed_at: list[int] = []
        last: list[int] = []
        for row in rows:
            ids += known_ids(row)
            positions += range(row.first, row.first + row.count)
            if row.fed:
                fed.append(row)
                fed_at.append(len(ids) - 1)
            if row.samples:
                last.append(len(ids) - 1)
        token_ids = self._tensor(ids)
        self._feed(token_ids, fed_at, [row.slot for row in fed])
        batch = self._triton_batch(rows, positions) if self._triton else self._cpu_batch(rows, positions)
        sampling = [row for row in rows if row.samples]
        return Inputs(token_ids[None], self._tensor(positions)[None], self._tensor(last), batch, sampling)

    def _copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy-on-write: each pair's second block gets what the first one holds, in every layer."""
        sources, targets = (self._tensor(blocks) for blocks in zip(*copies, strict=True))
        for cache in (*self.k_caches, *self.v_caches):
            cache[targets] = cache[sources]

    def _cpu_batch(self, rows: Sequence[Row], positions: list[int]) -> PagedBatch:
        decode = list(takewhile(lambda row: row.count == 1, rows))
        prefill = []
        start = len(decode)
        for row in rows[len(decode) :]:
            context = row.first + row.count
            table = torch.tensor(row.branch.blocks[: -(-context // self.block_size)]) if row.first else None
            prefill.append(cpu.PrefillRow(start, start + row.count, context, table))
            start += row.count
        plan = None
        if decode:
            tables = [row.branch.blocks for row in decode]
            plan = cpu.plan_decode(tables, [row.first + 1 for row in decode], self.block_size)
        blocks = [
            row.branch.blocks[p // self.block_size] for row in rows for p in range(row.first, row.first + row.count)
        ]
        offsets = torch.tensor(positions) % self.block_size
        return PagedBatch(self.k_caches, self.v_caches, CpuLayout(plan, prefill, torch.tensor(blocks), offsets))

    def _triton_batch(self, rows: Sequence[Row], positions: list[int]) -> PagedBatch:
        widest = max(len(row.branch.blocks) for row in rows)
        tables = [row.branch.blocks + [0] * (widest - len(row.branch.blocks)) for row in rows]
        starts, lengths, slots = [0], [], []
        for row in rows:
            starts.append(starts[-1] + row.count)
            lengths.append(row.first + row.count)
            for p in range(row.first, row.first + row.count):
                slots.append(row.branch.blocks[p // self.block_size] * self.block_size + p % self.block_size)
        flat = self._tensor([b for table in tables for b in table], torch.int32)
        return PagedBatch(
            self.k_caches,
            self.v_caches,
            query_starts=self._tensor(starts, torch.int32),
            context_lengths=self._tensor(lengths, torch.int32),
            block_tables=flat.view(len(rows), widest),
            slots=self._tensor(slots),
        )
