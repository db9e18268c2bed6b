"""Layers of the gated delta rule as our kernels compute them: between the products one convolution and one recurrence,
in place, for the tokens of all sequences at once; on a GPU for one token of each."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from engine.kernels.cpu import states
from engine.kernels.recurrence import Recurrence, Sequences

PARTS = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "conv1d", "norm", "out_proj")  # as Qwen3.5 has them
SIZES = ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim")


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """What of such a layer is no product, laid out. Its weights are read once: who changes them loads anew. `prompts`:
    its kernels serve several tokens of a sequence, and sequences that begin."""

    prompts: bool
    convolve: Callable[..., Tensor]
    recur: Callable[..., Tensor]
    taps: Tensor
    bias: Tensor | None
    fixed: Recurrence

    @classmethod
    def of(cls, layer: Any) -> DeltaRule | None:
        """None for another layer, or one that our kernels do not serve."""
        if not all(isinstance(getattr(layer, name, None), nn.Module) for name in PARTS):
            return None
        _, _, key, value = (getattr(layer, name, 0) for name in SIZES)
        weight: Tensor = layer.conv1d.weight
        on_gpu = weight.device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
        if on_gpu:
            from engine.kernels import state_steps

            serves, ours = state_steps.steps(key, value), (state_steps.convolution, state_steps.delta_rule)
        else:
            serves, ours = states.recurs(weight.dtype, key, value), (states.convolution, states.delta_rule)
        if not serves:
            return None
        taps = weight.detach().squeeze(1).mT.float().contiguous()
        bias = None if layer.conv1d.bias is None else layer.conv1d.bias.detach().float().contiguous()
        decay, added, norm = (
            x.detach().float().contiguous() for x in (layer.A_log.float().exp(), layer.dt_bias, layer.norm.weight)
        )
        found = not on_gpu, *ours, taps, bias
        return cls(*found, Recurrence(decay, added, norm, layer.num_k_heads, layer.norm.variance_epsilon))

    def __call__(self, layer: Any, hidden: Tensor, recent: Tensor, held: Tensor, whose: Sequences) -> Tensor:
        """`[1, tokens, hidden]` of as much; what `recent` and `held` keep is changed."""
        x = hidden[0]
        qkv, gate, write, forget = layer.in_proj_qkv(x), layer.in_proj_z(x), layer.in_proj_b(x), layer.in_proj_a(x)
        mixed = self.convolve(qkv, recent, self.taps, self.bias, True, whose)
        return layer.out_proj(self.recur(mixed, gate, write, forget, held, self.fixed, whose))[None]
