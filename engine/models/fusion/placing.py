"""Norms and rotations of queries and keys, put off to where the keys are kept: a paged cache on a GPU does both and
keeps keys and values in one kernel, any other way of attending has them done first.

The keys carry what is put off. Only our own attention looks for it, so under any other nothing is put off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from engine.kernels.place_kv import HeadNorms
from engine.models import attention
from engine.models.fusion.parts import NORM, ROTATE, FusedPart, Rotation, Setting, Use, subclass, with_rotation

KERNEL = "placing"


@dataclass(frozen=True, slots=True)
class PutOff:
    """The tables `[1, tokens, width]` of a rotation, and the norms before it."""

    cos: Tensor
    sin: Tensor
    norms: HeadNorms | None
    setting: Setting

    def done(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys `[1, heads, tokens, head_dim]`, normed and turned."""
        kernels = self.setting.kernels
        if self.norms is not None:
            q_weight, k_weight, eps, rounding = self.norms
            q, k = kernels.rms_norm(q, q_weight, eps, rounding), kernels.rms_norm(k, k_weight, eps, rounding)
        return kernels.rotate(q, k, self.cos, self.sin)


def put_off(part: nn.Module, setting: Setting) -> Iterator[tuple[nn.Module, FusedPart]]:
    """For an attention whose rotation is fused: the class to give it, and those for its norms of heads."""
    forward = type(part).forward
    rotation = getattr(forward, "__globals__", {}).get(ROTATE)
    config: Any = getattr(part, "config", None)
    if not isinstance(rotation, Rotation) or config is None or getattr(part, "head_dim", None) != rotation.head_dim:
        return
    norms: list[Any] = [getattr(part, name, None) for name in ("q_norm", "k_norm")]
    settings = {_settings(norm, rotation.head_dim) for norm in norms}
    found = settings.pop() if len(settings) == 1 else None
    use = Use()

    def ours(x: Tensor) -> bool:
        return setting.serves(x) and config._attn_implementation == attention.NAME and x.shape[0] == 1

    def later(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or not ours(q) or not rotation.fits(q, k, cos, sin):
            if found is not None and ours(q):
                raise RuntimeError("behind norms that were put off a rotation is called as it was not proved")
            return rotation(q, k, cos, sin, *args, **kwargs)
        use.served = True
        weights = HeadNorms(norms[0].weight, norms[1].weight, *found) if found is not None else None
        setattr(k, attention.LATER, PutOff(cos, sin, weights, setting))
        return q, k

    assert isinstance(forward, FunctionType)
    yield part, subclass(part, with_rotation(forward, {ROTATE: later}), KERNEL, use)
    for norm in norms if found is not None else ():
        yield norm, _passing(norm, ours)


def _settings(norm: Any, head_dim: int) -> tuple[float, Any] | None:
    """Epsilon and rounding of a fused norm of heads."""
    found, weight = getattr(type(norm), NORM, None), getattr(norm, "weight", None)
    return None if found is None or weight is None or len(weight) != head_dim else (getattr(norm, found[0]), found[1])


def _passing(norm: nn.Module, ours: Any) -> FusedPart:
    own: Any = type(norm).forward
    use = Use()

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        if not ours(x):
            return own(self, x)
        use.served = True
        return x

    return subclass(norm, forward, KERNEL, use)
