"""Layers of the gated delta rule as our kernels for a CPU compute them: between its products one convolution and one
recurrence, in place, for the tokens of all sequences at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from engine.kernels.cpu.states import Recurrence, Sequences, convolution, delta_rule, recurs

PARTS = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "conv1d", "norm", "out_proj")  # as Qwen3.5 has them
SIZES = ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim")


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """What of such a layer is no product, laid out. Its weights are read once: who changes them loads anew."""

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
        if weight.device.type != "cpu" or not recurs(weight.dtype, key, value):
            return None
        taps = weight.detach().squeeze(1).mT.float().contiguous()
        bias = None if layer.conv1d.bias is None else layer.conv1d.bias.detach().float().contiguous()
        decay, added, norm = (
            x.detach().float().contiguous() for x in (layer.A_log.float().exp(), layer.dt_bias, layer.norm.weight)
        )
        return cls(taps, bias, Recurrence(decay, added, norm, layer.num_k_heads, layer.norm.variance_epsilon))

    def __call__(self, layer: Any, hidden: Tensor, recent: Tensor, states: Tensor, whose: Sequences) -> Tensor:
        """`[1, tokens, hidden]` of as much; what `recent` and `states` keep is changed."""
        x = hidden[0]
        qkv, gate, write, forget = layer.in_proj_qkv(x), layer.in_proj_z(x), layer.in_proj_b(x), layer.in_proj_a(x)
        mixed = convolution(qkv, recent, self.taps, self.bias, True, whose)
        return layer.out_proj(delta_rule(mixed, gate, write, forget, states, self.fixed, whose))[None]
