"""K and V in a byte a value, with a scale of one byte for each token and head.

A block fills token by token. A scale for a whole block would be fixed by its first token, which later ones overflow, or
the block would be rounded anew as it fills, and what a token's keys are would hang on how its block was shared and on
where a step ended. With a scale of its own a token is rounded once, the same in any batch, after any preemption, behind
any prefix hit.

A scale is a float without a sign, of five bits of exponent and three of mantissa (UE5M3), from 2^-20 to 3,840; it is
rounded up, so that no value is beyond the largest code, and steps are up to an eighth wider than they need be. A
token's K and V of a head of 64 then take 65 bytes each, 1.97 times fewer than in bfloat16; with scales of two bytes a
head of 32 would gain 1.88.

"int8": codes are the nearest whole multiples of the scale, -127 to 127. "fp8": codes are E4M3 (Micikevicius et al.
2022, "FP8 formats for deep learning"), the largest of them 448 scales.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CODES = {"int8": torch.int8, "fp8": torch.uint8}  # what a cache of them is made of: its dtype tells the kind
MOST = {torch.int8: 127.0, torch.uint8: 448.0}  # the largest code's value
MANTISSA = 20  # bits of a float32's mantissa that a scale does not have
LEAST = 107 << 23  # the bits of 2^-20 as float32


class Codes(NamedTuple):
    """Values `[..., width]` int8 or uint8, and the scale of each width of them, uint8 `[...]`."""

    values: Tensor
    scales: Tensor


def is_quantized(cache: Tensor) -> bool:
    """Whether a cache holds codes; then its last dimension has one more element than a head has values: bytes for the
    scales. Where in a block they lie is known to who made it."""
    return cache.dtype in MOST


def scale_values(scales: Tensor) -> Tensor:
    """Scales uint8 as float32."""
    return ((scales.int() << MANTISSA) + LEAST).view(torch.float32)


def quantize(x: Tensor, codes: torch.dtype) -> Codes:
    """x `[..., width]` of any float dtype as codes of a dtype of `CODES`."""
    wide, most = x.float(), MOST[codes]
    bits = (wide.abs().amax(-1) * (1.0 / most)).view(torch.int32)
    scales = ((bits - LEAST + (1 << MANTISSA) - 1) >> MANTISSA).clamp_(0, 255).to(torch.uint8)
    values = (wide * (1.0 / scale_values(scales))[..., None]).clamp_(-most, most)
    if codes is torch.int8:
        return Codes(values.round_().to(torch.int8), scales)
    return Codes(values.to(torch.float8_e4m3fn).view(torch.uint8), scales)


def dequantize(values: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """What codes stand for, in a float dtype."""
    wide = values.float() if values.dtype is torch.int8 else values.contiguous().view(torch.float8_e4m3fn).float()
    return (wide * scale_values(scales)[..., None]).to(dtype)


def rounded(x: Tensor, codes: torch.dtype) -> Tensor:
    """x as attention reads it from a cache of such codes."""
    return dequantize(*quantize(x, codes), x.dtype)
