"""The quantized cache as the CPU's kernels read it, and torch's way to it where there is no compiler.

A head's part of a block is its values, laid as those of other dtypes (`engine.kernels.cpu.calls`), and after them the
block's scales.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.cpu.large_pages import Zeros, zeros_in_large_pages
from engine.kernels.quantized_kv import Codes, dequantize, quantize


def allocate(
    blocks: int, block_size: int, kv_heads: int, head_dim: int, codes: torch.dtype, zeros: Zeros = zeros_in_large_pages
) -> Tensor:
    """A K or V cache `[blocks, block_size, kv_heads, head_dim + 1]` of codes of this dtype."""
    return zeros((blocks, block_size, kv_heads, head_dim + 1), codes)


def keys_of(cache: Tensor) -> Codes:
    """What a K cache holds, where it lies: `[blocks, block_size, kv_heads, head_dim]` and `[blocks, block_size,
    kv_heads]`."""
    blocks, block_size, kv_heads, width = cache.shape
    lines = cache.view(blocks, kv_heads, width, block_size).permute(0, 3, 1, 2)
    return Codes(lines[..., :-1], lines[..., -1].view(torch.uint8))


def values_of(cache: Tensor) -> Codes:
    """The same of a V cache."""
    blocks, block_size, kv_heads, width = cache.shape
    heads = cache.view(blocks, kv_heads, width * block_size)
    values, scales = heads.split((block_size * (width - 1), block_size), -1)
    return Codes(values.unflatten(2, (block_size, width - 1)).transpose(1, 2), scales.view(torch.uint8).transpose(1, 2))


def held(k_cache: Tensor, v_cache: Tensor) -> tuple[Codes, Codes]:
    """Of both caches, which may be one: it lies as values do."""
    values = values_of(v_cache)
    return (values if k_cache is v_cache else keys_of(k_cache)), values


def store(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, at: tuple[Tensor, Tensor]) -> None:
    """Puts k and v `[tokens, kv_heads, head_dim]` at blocks and offsets int64 `[tokens]`, by torch."""
    for new, codes_of in zip((k, v), held(k_cache, v_cache), strict=True):
        for place, codes in zip(codes_of, quantize(new, k_cache.dtype), strict=True):
            place.index_put_(at, codes)


def readable(k_cache: Tensor, v_cache: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Both caches in a float dtype, `[blocks, block_size, kv_heads, head_dim]`."""
    k, v = (dequantize(*codes, dtype) for codes in held(k_cache, v_cache))
    return k, v


def context(k_cache: Tensor, v_cache: Tensor, table: Tensor, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A row's K and V in a float dtype, `[length, kv_heads, head_dim]`, copied together from its blocks."""
    k, v = (
        dequantize(codes.values[table], codes.scales[table], dtype).flatten(0, 1)[:length]
        for codes in held(k_cache, v_cache)
    )
    return k, v
