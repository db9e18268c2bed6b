"""A text predicted over K and V as a quantized cache keeps them: what its precision alone costs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.attention.options import Options
from engine.kernels.cpu.blocks import PrefillRow, prefill_attention
from engine.kernels.quantized_kv import CODES, rounded


@dataclass(frozen=True, slots=True)
class RoundedKv:
    """A batch of one text, on any device: each token attends to rounded keys and values, its own too, as the engine's
    paged modes have it."""

    kv_dtype: str

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        k, v = (rounded(x, CODES[self.kv_dtype]) for x in (k, v))
        with torch.device(q.device):  # where the mask is made
            return prefill_attention(q, k, v, PrefillRow(0, len(q), len(q), None), options)[None]
