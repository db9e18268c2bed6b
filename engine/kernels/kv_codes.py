"""The codes of a quantized cache in Triton kernels, as `engine.kernels.quantized_kv` tells them: what torch writes and
reads there, to the bit."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.jit import constant, jit, tl
from engine.kernels.quantized_kv import is_quantized

LEAST = constant(107 << 23)  # the bits of the least scale
NEAREST = constant(12582912.0)  # 1.5 * 2^23: a float plus it ends in the nearest whole number's bits


def allocate(
    blocks: int, block_size: int, kv_heads: int, head_dim: int, codes: torch.dtype, device: torch.device
) -> Tensor:
    """A K or V cache `[blocks, block_size, kv_heads, head_dim + 1]`: all values of a block, then all its scales."""
    return torch.zeros(blocks, block_size, kv_heads, head_dim + 1, dtype=codes, device=device)


def apart(cache: Tensor) -> tuple[Tensor, Tensor | None]:
    """A cache's values `[blocks, block_size, kv_heads, head_dim]` and their scales uint8 `[blocks, block_size,
    kv_heads]`; of one that holds no codes itself, and None."""
    if not is_quantized(cache):
        return cache, None
    blocks, block_size, kv_heads, width = cache.shape
    flat, count = cache.view(blocks, -1), block_size * kv_heads
    values = flat[:, : count * (width - 1)].unflatten(1, (block_size, kv_heads, width - 1))
    return values, flat[:, count * (width - 1) :].view(torch.uint8).unflatten(1, (block_size, kv_heads))


@jit
def scale_of(peak, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    """The least scale, as int32, by which values of up to `peak` have a code of this dtype."""
    most: tl.constexpr = 127.0 if dtype == tl.int8 else 448.0
    bits = (peak * (1.0 / most)).to(tl.int32, bitcast=True)
    return tl.minimum(tl.maximum((bits - LEAST + 0xFFFFF) >> 20, 0), 255)


@jit
def scale_value(scale):  # type: ignore[no-untyped-def]
    """Of a scale in any integer, float32."""
    return ((scale.to(tl.int32) << 20) + LEAST).to(tl.float32, bitcast=True)


@jit
def reciprocal(scale):  # type: ignore[no-untyped-def]
    """Of a scale's value, float32, as torch divides: a GPU's own division may err in the last bit. A mantissa has three
    bits."""
    eighths = scale & 7
    low = tl.where(eighths == 0, 1.0, tl.where(eighths == 1, 8 / 9, tl.where(eighths == 2, 8 / 10, 8 / 11)))
    high = tl.where(eighths == 4, 8 / 12, tl.where(eighths == 5, 8 / 13, tl.where(eighths == 6, 8 / 14, 8 / 15)))
    power = ((147 - (scale >> 3)) << 23).to(tl.float32, bitcast=True)  # 2 ** (20 - exponent)
    return tl.where(eighths < 4, low, high) * power


@jit
def encoded(x, scale, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    """The codes of this dtype of float32 values, in units of their scale, an int32."""
    most: tl.constexpr = 127.0 if dtype == tl.int8 else 448.0
    x = tl.minimum(tl.maximum(x * reciprocal(scale), -most), most)
    if dtype == tl.int8:
        return (x + NEAREST).to(tl.int32, bitcast=True).to(tl.int8)
    else:
        bits = x.to(tl.int32, bitcast=True)
        sign, size = (bits >> 24) & 0x80, bits & 0x7FFFFFFF
        normal = (size - (120 << 23) + 0x7FFFF + ((size >> 20) & 1)) >> 20
        small = (tl.abs(x) * 512.0 + NEAREST).to(tl.int32, bitcast=True) & 0xFF
        return (tl.where(size < (121 << 23), small, normal) | sign).to(tl.uint8)


@jit
def decoded(codes, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    """What codes stand for, in scales, in a float dtype; those of fp8 256 times less: as half floats, their bits."""
    if codes.dtype == tl.int8:
        return codes.to(dtype)
    wide = (codes.to(tl.int8, bitcast=True).to(tl.int16) << 7) & -16385  # the sign came twice
    return wide.to(tl.float16, bitcast=True).to(dtype)
