"""A text predicted at once over K and V as a cache keeps them that is quantized, or forgets: what that alone costs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from engine.config.specs import EngineConfig
from engine.kernels.attention.options import Options
from engine.kernels.cpu.blocks import PrefillRow, prefill_attention
from engine.kernels.quantized_kv import CODES, rounded
from engine.quality.kv_cache import KvCache
from engine.scheduler.kv_window import KvWindow


@dataclass(frozen=True, slots=True)
class RoundedKv:
    """A batch of one text, on any device: each token attends to rounded keys and values, its own too, as the engine's
    paged modes have it."""

    kv_dtype: str

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        q, k, v = _packed(query, key, value)
        k, v = (rounded(x, CODES[self.kv_dtype]) for x in (k, v))
        with torch.device(q.device):  # where the mask is made
            return prefill_attention(q, k, v, PrefillRow(0, len(q), len(q), None), options)[None]


@dataclass(frozen=True, slots=True)
class ForgetfulKv:
    """A batch of one text, on any device: each token attends to what the window leaves it, as if all of the text but
    its first token were an answer."""

    window: KvWindow

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        q, k, v = _packed(query, key, value)
        out, size, whole = torch.empty_like(q, memory_format=torch.contiguous_format), self.window.size, len(q)
        bounds = [0, *range(self.window.begins(1), whole, size), whole]
        with torch.device(q.device):
            for begin, end in pairwise(bounds):  # of tokens that see the same blocks
                gone = self.window.gone(1, begin)
                k_kept, v_kept = (_without(x[:end], gone.start * size, gone.stop * size) for x in (k, v))
                row = PrefillRow(begin, end, len(k_kept), None)
                out[begin:end] = prefill_attention(q[begin:end], k_kept, v_kept, row, options)
        return out[None]


def reading(cache: KvCache) -> RoundedKv | ForgetfulKv | None:
    """What attention is given in place of transformers' own, to read a text at once; None for the model's own cache."""
    if cache.kv_dtype != "auto":
        return RoundedKv(cache.kv_dtype)
    window = KvWindow.of(EngineConfig(**cache.settings))
    return ForgetfulKv(window) if window is not None else None


def _packed(*each: Tensor) -> list[Tensor]:
    """`[tokens, heads, head_dim]` of one text's."""
    return [x[0].transpose(0, 1) for x in each]


def _without(x: Tensor, begin: int, end: int) -> Tensor:
    return torch.cat([x[:begin], x[end:]]) if end > begin else x
