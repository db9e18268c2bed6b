"""Parts of transformers' models with one of our kernels inside, each proved to compute what the part computes.

A part is fused by giving this instance a subclass of its own class: no class and no module of transformers changes, and
weights are still read where they are when they are used. Whatever a subclass was not proved for (another dtype, more
arguments, gradients) its parent's forward computes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from engine.kernels.rms_norm import WIDEST, Rounding
from engine.kernels.silu_mul import Activation
from engine.models.fusion.kernels import Kernels, kernels_for

ROTATE = "apply_rotary_pos_emb"  # the global name by which transformers' attention rotates
INTERLEAVED = "apply_rotary_pos_emb_interleave"  # where it turns neighbours, and puts the first of them first
EPSILONS = ("variance_epsilon", "eps", "epsilon", "norm_eps")
ACTIVATIONS = ("act_fn", "activation_fn", "act")
GATED = (("gate_proj", "up_proj", "down_proj"), ("gate_up_proj", "down_proj"))
MARK = "_fused"  # an attribute of the classes made here
NORM = "_fused_norm"  # another, of norms: the name of the epsilon, and the rounding
ACTIVATION = "_activation"  # another, of gated MLPs
READY = "_ready"  # an attribute of tensors: a norm, and what it gives for them
ANY_WIDTH = 128  # that a norm without a weight is proved with
ACTED = 1024  # gates that an activation is proved with: as many compile the kernel that a model of any width uses
MAGNITUDES = (1e-3, 3e-2, 1.0, 30.0, 1e3)  # from where epsilon rules to where squares leave float16
# Two roundings to the dtype, relative.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


class LeftAlone(Exception):
    """A part stays as it is; the message says why, for a person."""


@dataclass(slots=True)
class Use:
    """Whether a kernel was ever launched in the place that it was proved for."""

    served: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """The dtype and the device that parts are proved for."""

    dtype: torch.dtype
    device: torch.device

    @property
    def kernels(self) -> Kernels:
        """Those that run there, where there are any."""
        kernels = kernels_for(self.device.type, self.dtype)
        assert kernels is not None
        return kernels

    def serves(self, x: Tensor) -> bool:
        return x.dtype is self.dtype and x.device.type == self.device.type and not torch.is_grad_enabled()

    def draw(self, *shape: int, seed: int = 0) -> Tensor:
        """Normal noise, the same each time; the process's own noise is left alone."""
        noise = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
        return noise.to(self.device, self.dtype)

    def magnitudes(self, width: int) -> Tensor:
        """Rows of noise `[2 * magnitudes, width]`, small and large."""
        scales = torch.tensor(MAGNITUDES).repeat(2)[:, None]
        noise = torch.randn(len(scales), width, generator=torch.Generator().manual_seed(1))
        return (noise * scales).to(self.device, self.dtype)


@dataclass(frozen=True, slots=True)
class FusedPart:
    """The class of a part, the one that fuses it, what of it our kernel computes, and its use."""

    own: type[nn.Module]
    cls: type[nn.Module]
    kernel: str
    use: Use


def subclass(part: nn.Module, forward: Callable[..., Any], kernel: str, use: Use) -> FusedPart:
    """`forward` in a class of the part's own kind."""
    own = type(part)
    names = {"forward": forward, MARK: True, "__module__": own.__module__, "__qualname__": own.__qualname__}
    return FusedPart(own, type(own.__name__, (own,), names), kernel, use)


def fused_norm(norm: nn.Module, setting: Setting) -> FusedPart:
    own: Callable[..., Tensor] = type(norm).forward
    weight = getattr(norm, "weight", None)
    epsilon = next((name for name in EPSILONS if isinstance(getattr(norm, name, None), float)), None)
    if epsilon is None:
        raise LeftAlone("it tells no epsilon")
    held = [*norm.parameters(), *norm.buffers()]
    if len(held) > 1 or (weight is not None and (weight.dim() != 1 or len(weight) > WIDEST)):
        raise LeftAlone("it holds more than one weight of its width")
    width = ANY_WIDTH if weight is None else len(weight)
    x = setting.magnitudes(width)
    probe = copy.copy(norm)
    if weight is not None:  # drawn, or weights of one or zero would hide what is done with them
        weight = (1.0 + 0.5 * setting.draw(width, seed=2)).to(weight.dtype)
        probe.__dict__["_parameters"] = {"weight": weight}
    expected = own(probe, x)
    eps = getattr(norm, epsilon)
    rounding = _rounding(x, weight, eps, expected)
    kernels = setting.kernels
    if not _equal(kernels.rms_norm(x, weight, eps, rounding), expected):
        raise LeftAlone("our norm computes something else")
    use = Use()

    def forward(self: nn.Module, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if args or kwargs or not setting.serves(x) or x.shape[-1] > WIDEST:
            return own(self, x, *args, **kwargs)
        use.served = True
        if (ready := getattr(x, READY, None)) is not None and ready[0] is self:
            return ready[1]
        return kernels.rms_norm(x, getattr(self, "weight", None), getattr(self, epsilon), rounding)

    fused = subclass(norm, forward, "norm", use)
    setattr(fused.cls, NORM, (epsilon, rounding))
    return fused


def _rounding(x: Tensor, weight: Tensor | None, eps: float, expected: Tensor) -> Rounding:
    """The rounding that gives most of `expected` bit for bit, told by torch: nothing is compiled to be thrown away."""
    unit = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    if weight is None:
        made = {Rounding.NONE: unit.to(x.dtype)}
    else:
        made = {
            Rounding.TWICE: weight * unit.to(x.dtype),
            Rounding.ONCE: (weight.float() * unit).to(x.dtype),
            Rounding.ONE_PLUS: (unit * (1.0 + weight.float())).to(x.dtype),
        }
    near = {rounding: out for rounding, out in made.items() if _equal(out, expected)}
    if not near:
        raise LeftAlone("it is no root mean square norm that we know")
    return min(near, key=lambda rounding: int((near[rounding] != expected).sum()))


def _equal(out: Any, expected: Any) -> bool:
    """Equal but for rounding, and of one dtype and shape."""
    if not isinstance(expected, Tensor) or out.dtype != expected.dtype or out.shape != expected.shape:
        return False
    tolerance = TOLERANCE[out.dtype]
    return torch.allclose(out.float(), expected.float(), rtol=tolerance, atol=tolerance / 100)


def fused_mlp(mlp: nn.Module, setting: Setting) -> FusedPart:
    own: Callable[..., Tensor] = type(mlp).forward
    act = next((name for name in ACTIVATIONS if callable(getattr(mlp, name, None))), None)
    if act is None:
        raise LeftAlone("its activation is not where we look for it")
    activation = _activation(getattr(mlp, act), setting)
    joined = hasattr(mlp, "gate_up_proj")
    use, kernels = Use(), setting.kernels

    def forward(self: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if args or kwargs or not setting.serves(x):
            return own(self, x, *args, **kwargs)
        use.served = True
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1) if joined else (self.gate_proj(x), self.up_proj(x))
        return self.down_proj(kernels.act_mul(gate, up, activation))

    width = getattr(mlp.gate_up_proj if joined else mlp.gate_proj, "in_features", None)
    if not isinstance(width, int):
        raise LeftAlone("its linear layers do not tell their width")
    x = setting.draw(1, 6, width) * torch.tensor([0.1, 1.0, 3.0], device=setting.device).repeat(2)[:, None]
    x = x.to(setting.dtype)
    expected = own(mlp, x)
    if not expected.any():
        raise LeftAlone("it puts out zeros, which prove nothing")
    out = forward(mlp, x)
    if out.dtype != expected.dtype or out.shape != expected.shape:
        raise LeftAlone("it puts out another dtype or shape than ours")
    # Sums of many products: what rounds differently inside is seen against the largest of them.
    if (out.float() - expected.float()).abs().max() > TOLERANCE[out.dtype] * expected.float().abs().max():
        raise LeftAlone("it is no plain gated MLP")
    use.served = False
    fused = subclass(mlp, forward, "gate", use)
    setattr(fused.cls, ACTIVATION, activation)
    return fused


def _activation(act: Callable[[Tensor], Tensor], setting: Setting) -> Activation:
    """Which activation `act` is. Raises LeftAlone where it is none of ours, or our kernel disagrees."""
    gate, up = setting.magnitudes(ACTED), setting.draw(2 * len(MAGNITUDES), ACTED, seed=3)
    acted = act(gate)
    found = {
        Activation.SILU: torch.nn.functional.silu(gate),
        Activation.GELU_TANH: torch.nn.functional.gelu(gate, approximate="tanh"),
        Activation.GELU: torch.nn.functional.gelu(gate),
    }
    # Where a gelu is all but zero its own two ways of being computed differ: hence the larger absolute tolerance.
    near = {
        activation: out
        for activation, out in found.items()
        if out.dtype == acted.dtype and torch.allclose(out.float(), acted.float(), rtol=TOLERANCE[out.dtype], atol=1e-6)
    }
    if not near:
        raise LeftAlone("its activation is none that we have a kernel for")
    activation = min(near, key=lambda one: float((near[one].float() - acted.float()).abs().sum()))
    made, expected = setting.kernels.act_mul(gate, up, activation).float(), (acted * up).float()
    if not torch.allclose(made, expected, rtol=TOLERANCE[setting.dtype], atol=1e-5):
        raise LeftAlone("our activation computes something else")
    return activation


class Rotation:
    """Stands in the place of `apply_rotary_pos_emb` of one kind of attention, or of the one that turns `neighbours`."""

    def __init__(
        self,
        own: Callable[..., Any],
        neighbours: bool,
        heads: int,
        head_dim: int,
        setting: Setting,
        use: Use,
        turned: int,
    ) -> None:
        self._own, self._heads, self.head_dim, self._setting, self._use = own, heads, head_dim, setting, use
        self._neighbours = neighbours
        # Tables may be as wide as a head, or as what is `turned` of it, or half of it, and stay float32 (OLMo 2).
        self._partly = turned < head_dim and not setting.kernels.on_gpu
        widths = (turned,) if self._partly else (head_dim, head_dim // 2)
        possible = product(widths, {setting.dtype, torch.float32})
        self._tables = {table for table in possible if self._proved(*table)}
        if not self._tables:
            raise LeftAlone("its rotary embedding turns other pairs than ours")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != 4 or not self.fits(*args):
            return self._own(*args, **kwargs)
        self._use.served = True
        return self._rotate(*args)

    def _rotate(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        rotate = self._setting.kernels.rotate
        if self._partly and not self._neighbours:
            return rotate(q, k, cos, sin, False, True)
        if not self._neighbours:
            return rotate(q, k, cos, sin)
        pairs = cos.shape[-1] // 2  # whose second half nobody looks at
        return rotate(q, k, cos[..., :pairs], sin[..., :pairs], True)

    def fits(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> bool:
        return (
            q.dim() == k.dim() == 4
            and cos.dim() == 3
            and self._setting.serves(q)
            and k.dtype is q.dtype
            and (cos.shape[-1], cos.dtype) in self._tables
            and sin.shape == cos.shape
            and sin.dtype is cos.dtype
            and q.shape[-1] == k.shape[-1] == self.head_dim
            and q.shape[2] == k.shape[2] == cos.shape[1]
            and q.shape[0] == k.shape[0]
            and cos.shape[0] in (1, q.shape[0])
        )

    def _proved(self, width: int, dtype: torch.dtype) -> bool:
        q = self._setting.draw(2, 5, self._heads, self.head_dim, seed=3).transpose(1, 2)
        k = self._setting.draw(2, 5, 2, self.head_dim, seed=4).transpose(1, 2)
        cos, sin = (self._setting.draw(2, 5, width, seed=seed).to(dtype) for seed in (5, 6))
        try:
            expected = self._own(q, k, cos, sin)
        except (RuntimeError, ValueError, TypeError, IndexError):
            return False  # not tables that it takes
        if [(x.shape, x.dtype) for x in expected] != [(x.shape, x.dtype) for x in (q, k)]:
            return False
        tolerance = TOLERANCE[self._setting.dtype]
        return all(
            torch.allclose(out.float(), own.float(), rtol=tolerance, atol=tolerance)
            for out, own in zip(self._rotate(q, k, cos, sin), expected)
        )


def fused_attention(attention: nn.Module, setting: Setting) -> FusedPart:
    own = type(attention).forward
    if not isinstance(own, FunctionType) or hasattr(own, "__wrapped__"):
        raise LeftAlone("its forward is wrapped in another function")
    rotations = {name: own.__globals__.get(name) for name in (ROTATE, INTERLEAVED) if name in own.__code__.co_names}
    head_dim = getattr(attention, "qk_rope_head_dim", getattr(attention, "head_dim", None))
    if not all(map(callable, rotations.values())) or not isinstance(head_dim, int) or head_dim % 2:
        raise LeftAlone("it does not tell the width of its heads")
    # As many heads as the model's, or what is compiled for the proof would be of no use after it.
    heads = getattr(getattr(attention, "config", None), "num_attention_heads", 4)
    use = Use()
    ours = {
        name: Rotation(rotation, name == INTERLEAVED, heads, head_dim, setting, use, _turned(attention, head_dim))
        for name, rotation in rotations.items()
        if callable(rotation)
    }
    return subclass(attention, with_rotation(own, ours), "rotation", use)


def _turned(attention: nn.Module, head_dim: int) -> int:
    """How much of a head is turned, as the config says."""
    config = getattr(attention, "config", None)
    told = getattr(config, "rope_parameters", None)
    share = told.get("partial_rotary_factor") if isinstance(told, dict) else None
    return int(head_dim * (share or getattr(config, "partial_rotary_factor", None) or 1.0))


def with_rotation(own: FunctionType, rotations: Mapping[str, Callable[..., Any]]) -> FunctionType:
    """The same code, which calls these by these names to rotate."""
    told = {**own.__globals__, **rotations}
    forward = FunctionType(own.__code__, told, own.__name__, own.__defaults__, own.__closure__)
    forward.__kwdefaults__ = own.__kwdefaults__
    forward.__annotations__ = own.__annotations__
    forward.__qualname__ = own.__qualname__
    forward.__doc__ = own.__doc__
    return forward
