"""Layers that keep a state as our kernels compute them: what lies between their products is one or two kernels that
change the states where they are, for the tokens of all sequences at once; on a GPU for one token of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from engine.kernels.cpu import states
from engine.kernels.recurrence import Recurrence, Sequences

CONV, RECURRENT = ("conv", 0), ("recurrent", 0)  # what of such a layer is kept, as `engine.models.states` names it
PARTS = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "conv1d", "norm", "out_proj")  # of Qwen3.5's
SHORT = ("in_proj", "conv", "out_proj")  # of LFM2's
SIZES = ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim")


class InPlace(Protocol):
    """`prompts`: it serves several tokens of a sequence, and sequences that begin."""

    @property
    def prompts(self) -> bool: ...

    def __call__(self, layer: Any, hidden: Tensor, kept: Mapping[tuple[str, int], Tensor], whose: Sequences) -> Tensor:
        """What the layer makes of `[1, tokens, hidden]`; `kept`, by slot, is changed."""


def in_place(layer: Any) -> InPlace | None:
    """None for a layer that our kernels do not serve. Weights are read once: who changes them loads anew."""
    return DeltaRule.of(layer) or ShortConvolution.of(layer)


@dataclass(frozen=True, slots=True)
class Taps:
    """A convolution of each channel by itself: `weight` `[taps, channels]` and `bias` `[channels]`, float32."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, convolution: Any) -> Taps:
        weight, bias = convolution.weight.detach(), convolution.bias
        return cls(weight.squeeze(1).mT.float().contiguous(), None if bias is None else bias.detach().float())


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """The gated delta rule, as Qwen3.5 has it."""

    prompts: bool
    convolve: Callable[..., Tensor]
    recur: Callable[..., Tensor]
    taps: Taps
    fixed: Recurrence

    @classmethod
    def of(cls, layer: Any) -> DeltaRule | None:
        if not _has(layer, PARTS):
            return None
        _, _, key, value = (getattr(layer, name, 0) for name in SIZES)
        on_gpu = _on_gpu(layer)
        if on_gpu:
            from engine.kernels import state_steps

            serves, ours = state_steps.steps(key, value), (state_steps.convolution, state_steps.delta_rule)
        else:
            dtype = layer.conv1d.weight.dtype
            serves, ours = states.recurs(dtype, key, value), (states.convolution, states.delta_rule)
        if not serves:
            return None
        decay, added, norm = (
            x.detach().float().contiguous() for x in (layer.A_log.float().exp(), layer.dt_bias, layer.norm.weight)
        )
        fixed = Recurrence(decay, added, norm, layer.num_k_heads, layer.norm.variance_epsilon)
        return cls(not on_gpu, *ours, Taps.of(layer.conv1d), fixed)

    def __call__(self, layer: Any, hidden: Tensor, kept: Mapping[tuple[str, int], Tensor], whose: Sequences) -> Tensor:
        x = hidden[0]
        qkv, gate, write, forget = layer.in_proj_qkv(x), layer.in_proj_z(x), layer.in_proj_b(x), layer.in_proj_a(x)
        mixed = self.convolve(qkv, kept[CONV], self.taps.weight, self.taps.bias, True, whose)
        return layer.out_proj(self.recur(mixed, gate, write, forget, kept[RECURRENT], self.fixed, whose))[None]


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """A convolution between two gates, as LFM2 has it."""

    prompts: bool
    convolve: Callable[..., Tensor]
    taps: Taps

    @classmethod
    def of(cls, layer: Any) -> ShortConvolution | None:
        if not (_has(layer, SHORT) and isinstance(layer.conv, nn.Conv1d)):
            return None
        if _on_gpu(layer):
            from engine.kernels import state_steps

            return cls(False, state_steps.convolution, Taps.of(layer.conv))
        if not states.computes(layer.conv.weight.dtype):
            return None
        return cls(True, states.convolution, Taps.of(layer.conv))

    def __call__(self, layer: Any, hidden: Tensor, kept: Mapping[tuple[str, int], Tensor], whose: Sequences) -> Tensor:
        before, after, x = layer.in_proj(hidden[0]).chunk(3, dim=-1)
        made = self.convolve(before * x, kept[CONV], self.taps.weight, self.taps.bias, False, whose)
        return layer.out_proj(after * made)[None]


def _has(layer: Any, parts: tuple[str, ...]) -> bool:
    return all(isinstance(getattr(layer, name, None), nn.Module) for name in parts)


def _on_gpu(layer: nn.Module) -> bool:
    """Also with Triton's interpreter on."""
    return next(layer.parameters()).device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
