"""The kernels of a model's small operations: Triton's on a GPU and in its interpreter, compiled ones on a CPU."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from engine.kernels.rms_norm import Rounding
from engine.kernels.silu_mul import Activation


@dataclass(frozen=True, slots=True)
class Kernels:
    """Shapes as in `engine.kernels.rms_norm`, `rotary` and `silu_mul`. Each may raise NotImplementedError for what it
    does not compute. Those of a GPU alone are None on a CPU, which packs products of one input as one already."""

    rms_norm: Callable[[Tensor, Tensor | None, float, Rounding], Tensor]
    rotate: Callable[..., tuple[Tensor, Tensor]]
    act_mul: Callable[[Tensor, Tensor, Activation], Tensor]
    angles: Callable[[Tensor, Tensor, float, bool, torch.dtype], tuple[Tensor, Tensor]] | None = None
    add_norm: Callable[..., tuple[Tensor, Tensor]] | None = None
    place_kv: Callable[..., Tensor] | None = None
    experts: Callable[..., Tensor] | None = None
    route: Callable[[Tensor, int, bool, torch.dtype], tuple[Tensor, Tensor]] | None = None  # of a mixture's logits

    @property
    def on_gpu(self) -> bool:
        return self.add_norm is not None


def kernels_for(device: str, dtype: torch.dtype) -> Kernels | None:
    """What runs on devices of this type, or None. With Triton's interpreter on, the GPU's run on CPU tensors."""
    return _kernels(device, dtype, device == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


@cache
def _kernels(device: str, dtype: torch.dtype, on_gpu: bool) -> Kernels | None:
    if on_gpu:
        from engine.kernels.place_kv import place_kv
        from engine.kernels.products.experts import experts
        from engine.kernels.rms_norm import add_norm, rms_norm
        from engine.kernels.rotary import rotate
        from engine.kernels.routing import route
        from engine.kernels.silu_mul import act_mul

        return Kernels(rms_norm, rotate, act_mul, None, add_norm, place_kv, experts, route)
    from engine.kernels.cpu import calls

    if device != "cpu" or not calls.computes(dtype):
        return None
    return Kernels(calls.rms_norm, calls.rotate, calls.act_mul, calls.angles)
