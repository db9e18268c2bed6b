"""The attention function that transformers' models call; each step's batch knows its own cache and answers it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engine.kernels import cpu

if TYPE_CHECKING:
    from engine.kernels.packed_rows import PackedRows

NAME = "batchscope"


@dataclass(slots=True)
class Options:
    """What a layer asks of attention: scale of the scores, sliding window in tokens, softcap, sinks `[heads]`."""

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


class Batch(Protocol):
    """One step's rows over one of the caches."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        """Keeps key and value `[sequences, kv_heads, tokens, head_dim]`, attends with query `[sequences, heads, tokens,
        head_dim]`; out `[sequences, tokens, heads, head_dim]`."""
        ...


@dataclass(slots=True)
class Timer:
    """The seconds that a step's attention took so far: on a CPU, where a call returns when it is done."""

    seconds: float = 0.0


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    batch: Batch,
    timer: Timer | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface; shapes as in `Batch.attend`."""
    layer: int = module.layer_idx  # type: ignore[assignment]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    begun = time.perf_counter()
    out = batch.attend(layer, query, key, value, Options(scale, sliding_window, softcap, s_aux))
    if timer is not None:
        timer.seconds += time.perf_counter() - begun
    return out, None


ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, lambda *args, **kwargs: None)


@dataclass(slots=True)
class CpuLayout:
    """How a CPU step is cut: decode rows first, all at once, then the others one by one."""

    decode: cpu.DecodePlan | None
    prefill: list[cpu.PrefillRow]
    blocks: Tensor
    offsets: Tensor
    _biases: dict[int | None, list[Tensor]] = field(default_factory=dict)

    def biases(self, window: int | None) -> list[Tensor]:
        """The decode rows' biases for a window, made once a step."""
        assert self.decode is not None
        if window not in self._biases:
            self._biases[window] = self.decode.biases(window)
        return self._biases[window]


@dataclass(slots=True)
class PagedBatch:
    """One step's view of the paged cache. Caches are a list by layer of `[blocks, block_size, kv_heads, head_dim]`.

    The rows are packed: one sequence of all their tokens. `query_starts` `[rows + 1]`, `context_lengths` `[rows]`,
    `block_tables` `[rows, max_blocks]` int32 and `slots` `[tokens]` int64 are on the device; on a CPU `layout` takes
    their place.
    """

    k_caches: list[Tensor]
    v_caches: list[Tensor]
    layout: CpuLayout | None = None
    query_starts: Tensor | None = None
    context_lengths: Tensor | None = None
    block_tables: Tensor | None = None
    slots: Tensor | None = None
    packed: PackedRows | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
        k_cache, v_cache = self.k_caches[layer], self.v_caches[layer]
        if self.layout is not None:
            return _attend_cpu(self.layout, q, k, v, k_cache, v_cache, options)[None]
        return _attend_triton(self, q, k, v, k_cache, v_cache, options)[None]


def _attend_cpu(
    layout: CpuLayout, q: Tensor, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, options: Options
) -> Tensor:
    cpu.store_kv(k, v, k_cache, v_cache, layout.blocks, layout.offsets)
    scale, window, softcap, sinks = options.scale, options.window, options.softcap, options.sinks
    decode = layout.decode
    if decode is not None:
        rows, biases = decode.rows, layout.biases(window)
        decoded = cpu.decode_attention(
            q[:rows], k_cache, v_cache, decode, biases, scale=scale, softcap=softcap, sinks=sinks
        )
        if not layout.prefill:
            return decoded
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if decode is not None:
        out[: decode.rows] = decoded
    for row in layout.prefill:
        at = slice(row.start, row.end)
        out[at] = cpu.prefill_attention(
            q[at], k[at], v[at], k_cache, v_cache, row, scale=scale, window=window, softcap=softcap, sinks=sinks
        )
    return out


def _attend_triton(
    batch: PagedBatch, q: Tensor, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, options: Options
) -> Tensor:
    from engine.kernels.paged_attention import PackedRows, paged_attention
    from engine.kernels.store_kv import store_kv

    assert batch.slots is not None
    assert batch.block_tables is not None
    assert batch.query_starts is not None
    assert batch.context_lengths is not None
    store_kv(k, v, k_cache, v_cache, batch.slots)
    if batch.packed is None:
        rows = len(batch.context_lengths)
        short = rows if len(q) == rows else 0  # a decode step
        batch.packed = PackedRows(batch.query_starts, batch.context_lengths, batch.block_tables, short=short)
    return paged_attention(
        q, k_cache, v_cache, batch.packed,
        scale=options.scale, sliding_window=options.window, softcap=options.softcap, sinks=options.sinks,
    )  # fmt: skip
