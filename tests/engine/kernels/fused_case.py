"""What the fused kernels should compute, in float64, and inputs laid out as models lay them out."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from engine.kernels.rms_norm import Rounding
from engine.kernels.silu_mul import Activation

TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def check(out: Tensor, expected: Tensor) -> None:
    """`expected` is float64; small values may be off by what the dtype resolves of values near one."""
    tolerance = TOLERANCE[out.dtype]
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


def normed(x: Tensor, weight: Tensor | None, eps: float, rounding: Rounding) -> Tensor:
    x = x.double()
    out = x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    if weight is None:
        return out
    return out * (weight.double() + (rounding is Rounding.ONE_PLUS))


def acted(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    x = gate.double()
    match activation:
        case Activation.SILU:
            x = x * torch.sigmoid(x)
        case Activation.GELU_TANH:
            x = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        case Activation.GELU:
            x = 0.5 * x * torch.erfc(-x / math.sqrt(2))
        case Activation.CLAMPED:
            x = x.clamp(max=7.0)
            return x * torch.sigmoid(1.702 * x) * (up.double().clamp(-7.0, 7.0) + 1)
    return x * up.double()


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` [batch, heads, tokens, head_dim] as pairs of complex numbers; tables as wide as a head, or half."""
    low, high = x.double().chunk(2, dim=-1)
    cos, sin = cos.double()[:, None], sin.double()[:, None]
    if cos.shape[-1] < x.shape[-1]:
        cos, sin = torch.cat([cos, cos], dim=-1), torch.cat([sin, sin], dim=-1)
    (low_cos, high_cos), (low_sin, high_sin) = cos.chunk(2, dim=-1), sin.chunk(2, dim=-1)
    return torch.cat([low * low_cos - high * low_sin, high * high_cos + low * high_sin], dim=-1)


def tables_of(angles: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Their cosines and sines: beyond one, products would round by more than what they leave of each other."""
    return angles.cos().to(dtype), angles.sin().to(dtype)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x.contiguous(),
    "heads first": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "a slice of each row": lambda x: torch.cat([torch.full_like(x, torch.nan), x], dim=-1)[..., x.shape[-1] :],
    "a slice of each token": lambda x: torch.cat([torch.full_like(x, torch.nan), x], dim=2)[:, :, x.shape[2] :],
    "a slice, heads first": lambda x: LAYOUTS["a slice of each token"](x.transpose(1, 2)).transpose(1, 2),
    "columns first": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
}  # of [batch, a, b, width]; what lies beside it is poisoned
