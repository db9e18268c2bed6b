"""The attention function that transformers' models call, over our paged cache, and the batch it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engine.kernels import cpu

NAME = "batchscope_paged"


@dataclass(slots=True)
class PrefillRow:
    """A CPU row of more than one token: its tokens [start, end) in the packed step, and its context so far."""

    start: int
    end: int
    context: int
    table: Tensor


@dataclass(slots=True)
class CpuLayout:
    """How a CPU step is cut: decode rows first, all at once, then the others one by one."""

    decode: cpu.DecodePlan | None
    prefill: list[PrefillRow]
    blocks: Tensor
    offsets: Tensor
    biases: dict[int | None, Tensor] = field(default_factory=dict)

    def bias(self, window: int | None) -> Tensor:
        """The decode rows' bias for a window, made once a step."""
        assert self.decode is not None
        if window not in self.biases:
            self.biases[window] = self.decode.bias(window)
        return self.biases[window]


@dataclass(slots=True)
class PagedBatch:
    """One step's view of the cache. Caches are a list by layer of `[blocks, block_size, kv_heads, head_dim]`.

    `query_starts` `[rows + 1]`, `context_lengths` `[rows]`, `block_tables` `[rows, max_blocks]` int32 and `slots`
    `[tokens]` int64 are on the device; on a CPU `layout` takes their place.
    """

    k_caches: list[Tensor]
    v_caches: list[Tensor]
    layout: CpuLayout | None = None
    query_starts: Tensor | None = None
    context_lengths: Tensor | None = None
    block_tables: Tensor | None = None
    slots: Tensor | None = None


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    batch: PagedBatch,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query `[1, heads, tokens, head_dim]` to out `[1, tokens, heads, head_dim]`."""
    layer: int = module.layer_idx  # type: ignore[assignment]
    q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
    scale = q.shape[-1] ** -0.5 if scaling is None else scaling
    k_cache, v_cache = batch.k_caches[layer], batch.v_caches[layer]
    if batch.layout is not None:
        out = _attend_cpu(batch.layout, q, k, v, k_cache, v_cache, scale, sliding_window, softcap, s_aux)
    else:
        out = _attend_triton(batch, q, k, v, k_cache, v_cache, scale, sliding_window, softcap, s_aux)
    return out[None], None


def _attend_cpu(
    layout: CpuLayout,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    cpu.store_kv(k, v, k_cache, v_cache, layout.blocks, layout.offsets)
    decode = layout.decode
    if decode is not None:
        bias = layout.bias(window)
        rows = decode.rows
        decoded = cpu.decode_attention(
            q[:rows], k_cache, v_cache, decode, bias, scale=scale, softcap=softcap, sinks=sinks
        )
        if not layout.prefill:
            return decoded
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if decode is not None:
        out[: decode.rows] = decoded
    for row in layout.prefill:
        span = slice(row.start, row.end)
        if row.context == row.end - row.start:
            keys, values = k[span], v[span]
        else:
            keys = cpu.gather_context(k_cache, row.table, row.context)
            values = cpu.gather_context(v_cache, row.table, row.context)
        out[span] = cpu.prefill_attention(
            q[span], keys, values, scale=scale, window=window, softcap=softcap, sinks=sinks
        )
    return out


def _attend_triton(
    batch: PagedBatch,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    from engine.kernels.paged_attention import paged_attention
    from engine.kernels.store_kv import store_kv

    assert batch.slots is not None
    assert batch.block_tables is not None
    assert batch.query_starts is not None
    assert batch.context_lengths is not None
    store_kv(k, v, k_cache, v_cache, batch.slots)
    return paged_attention(
        q, k_cache, v_cache, batch.block_tables, batch.query_starts, batch.context_lengths,
        scale=scale, sliding_window=window, softcap=softcap, sinks=sinks,
    )  # fmt: skip


ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, lambda *args, **kwargs: None)
