"""Runs a step: packs the rows, calls the model over the paged cache, samples. Owns the KV tensors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import takewhile

import torch
from torch import Tensor

from engine.config import EngineConfig
from engine.decoding.sampler import Sampled, Sampler
from engine.kernels import cpu
from engine.models.attention import CpuLayout, PagedBatch, PrefillRow
from engine.models.loading import LoadedModel
from engine.scheduler import Row, StepPlan

Clock = time.perf_counter


@dataclass(slots=True)
class Results:
    """A step's sampled tokens on the host, in the order of its sampling rows."""

    tokens: list[int]
    logprobs: list[float]
    alternatives: list[list[int]]
    alternative_logprobs: list[list[float]]


@dataclass(slots=True)
class Launched:
    """A step that the device is computing. `seconds` a phase: prepare, forward, sample; `read` adds wait."""

    plan: StepPlan
    started: float
    step: int = -1
    seconds: dict[str, float] = field(default_factory=dict)
    _sampled: Sampled | None = None
    _event: torch.cuda.Event | None = None

    def read(self) -> Results:
        """Waits for the device and copies the tokens to the host."""
        begun = Clock()
        if self._event is not None:
            self._event.synchronize()
        if self._sampled is None:
            results = Results([], [], [], [])
        else:
            s = self._sampled
            results = Results(
                s.tokens.tolist(),
                s.logprobs.tolist(),
                [] if s.alternatives is None else s.alternatives.tolist(),
                [] if s.alternative_logprobs is None else s.alternative_logprobs.tolist(),
            )
        self.seconds["wait"] = Clock() - begun
        return results


class PagedRunner:
    """One model over `blocks` blocks of KV cache.

    Rows are packed into one sequence `[1, tokens]`; decode rows come first. A sampled token is also kept on the device
    by slot, so that the next step can be launched before it is read.
    """

    def __init__(self, model: LoadedModel, config: EngineConfig, blocks: int) -> None:
        self.model, self.block_size = model, config.block_size
        self._device = model.device
        # With Triton's interpreter on, the GPU's kernels run on CPU tensors: so its path is tested without a GPU.
        self._triton = model.device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
        self.k_caches = [self._allocate(cpu.allocate_keys, blocks, *shape) for shape in model.layer_kv]
        self.v_caches = [self._allocate(cpu.allocate_values, blocks, *shape) for shape in model.layer_kv]
        self._last_token = torch.zeros(config.max_running, dtype=torch.long, device=self._device)
        self._sampler = Sampler(config.max_running, model.card.vocabulary, self._device)

    def _allocate(self, on_cpu: Callable[..., Tensor], blocks: int, kv_heads: int, head_dim: int) -> Tensor:
        if not self._triton:
            return on_cpu(blocks, self.block_size, kv_heads, head_dim, self.model.dtype)
        return torch.zeros(blocks, self.block_size, kv_heads, head_dim, dtype=self.model.dtype, device=self._device)

    def launch(self, plan: StepPlan) -> Launched:
        """Starts a step; returns before the device is done (on a CPU, when it is)."""
        begun = Clock()
        launched = Launched(plan, begun)
        rows = plan.rows
        with torch.inference_mode(), self._current_device():
            ids, positions, batch, last = self._prepare(rows)
            prepared = Clock()
            sampling = [row for row in rows if row.samples]
            logits = self.model.module(
                input_ids=ids[None],
                position_ids=positions[None],
                use_cache=False,
                logits_to_keep=last,
                batch=batch,
            ).logits[0]
            forwarded = Clock()
            for row in rows:
                if row.first == 0:
                    self._sampler.begin(row.branch)
            if sampling:
                sampled = self._sampler(logits, [row.branch for row in sampling])
                slots = torch.tensor([row.slot for row in sampling], device=self._device)
                self._last_token.index_copy_(0, slots, sampled.tokens)
                launched._sampled = self._to_host(sampled, launched)
        done = Clock()
        launched.seconds = {"prepare": prepared - begun, "forward": forwarded - prepared, "sample": done - forwarded}
        return launched

    def _current_device(self) -> AbstractContextManager[object]:
        """Triton launches on the thread's current GPU, which need not be the model's."""
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()

    def _to_host(self, sampled: Sampled, launched: Launched) -> Sampled:
        if self._device.type == "cpu":
            return sampled
        copied = Sampled(*(
            None if t is None else torch.empty(t.shape, dtype=t.dtype, pin_memory=True).copy_(t, non_blocking=True)
            for t in (sampled.tokens, sampled.logprobs, sampled.alternatives, sampled.alternative_logprobs)
        ))  # type: ignore[arg-type]  # fmt: skip
        launched._event = torch.cuda.Event()
        launched._event.record()
        return copied

    def _prepare(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor, PagedBatch, Tensor]:
        """Token ids and positions `[tokens]`, the batch for attention, and where each sampling row ends."""
        ids: list[int] = []
        positions: list[int] = []
        fed: list[tuple[int, int]] = []
        last: list[int] = []
        for row in rows:
            if row.fed:
                fed.append((len(ids), row.slot))
                ids.append(0)
            else:
                ids += row.branch.tokens[row.first : row.first + row.count]
            positions += range(row.first, row.first + row.count)
            if row.samples:
                last.append(len(ids) - 1)
        token_ids = self._tensor(ids)
        if fed:
            at, slots = zip(*fed, strict=True)
            token_ids[self._tensor(list(at))] = self._last_token[self._tensor(list(slots))]
        batch = self._triton_batch(rows, positions) if self._triton else self._cpu_batch(rows, positions)
        return token_ids, self._tensor(positions), batch, self._tensor(last)

    def _tensor(self, values: list[int], dtype: torch.dtype = torch.long) -> Tensor:
        if self._device.type == "cpu":
            return torch.tensor(values, dtype=dtype)
        return torch.tensor(values, dtype=dtype, pin_memory=True).to(self._device, non_blocking=True)

    def _cpu_batch(self, rows: Sequence[Row], positions: list[int]) -> PagedBatch:
        decode = list(takewhile(lambda row: row.count == 1, rows))
        prefill = []
        start = len(decode)
        for row in rows[len(decode) :]:
            context = row.first + row.count
            table = torch.tensor(row.branch.blocks[: -(-context // self.block_size)])
            prefill.append(PrefillRow(start, start + row.count, context, table))
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
