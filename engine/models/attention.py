"""The attention function that transformers' models call; each step's batch knows its own cache and answers it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engine.kernels import cpu

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


# No mask is registered under the name: transformers then makes none, and does not look for packed sequences in the
# positions, for which the host would wait for the GPU in every step.
ALL_ATTENTION_FUNCTIONS.register(NAME, attend)


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
class CpuBatch:
    """One step's view of the paged cache on a CPU. Caches are a list by layer of `[blocks, block_size, kv_heads,
    head_dim]`. The rows are packed: one sequence of all their tokens."""

    k_caches: list[Tensor]
    v_caches: list[Tensor]
    layout: CpuLayout

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
        return _attend_cpu(self.layout, q, k, v, self.k_caches[layer], self.v_caches[layer], options)[None]


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
