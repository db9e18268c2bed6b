"""Triton kernel of what lies between an attention layer's products and its attention: norms of queries and keys where a
model has them, rotation, and the writing of keys and values into the paged cache, in one launch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import jit, launch, strides, tl
from engine.kernels.kv_codes import apart, encoded, scale_of
from engine.kernels.rms_norm import Rounding, fetch_weight, weighted
from engine.kernels.rotary import cut, tables_of, turned


class HeadNorms(NamedTuple):
    """The weights `[head_dim]` of the norms of each query's and key's heads, and how they norm."""

    q_weight: Tensor
    k_weight: Tensor
    eps: float
    rounding: Rounding


@jit
def normed_and_turned(  # type: ignore[no-untyped-def]
    x, at, inside, dim, weight, eps, tables, ROUNDING: tl.constexpr, HALF: tl.constexpr
):
    """Both halves of heads [tokens, heads, dims] that begin at `x + at`, normed and turned, in x's dtype."""
    dtype: tl.constexpr = x.dtype.element_ty
    low = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(x + at + HALF, mask=inside, other=0.0).to(tl.float32)
    if weight is not None:
        mean = (tl.sum(low * low, axis=2) + tl.sum(high * high, axis=2)) / (2 * HALF)
        by = tl.rsqrt(mean + eps)[:, :, None]
        low_scale = tl.load(weight + dim, mask=dim < HALF, other=0.0).to(tl.float32)
        high_scale = tl.load(weight + HALF + dim, mask=dim < HALF, other=0.0).to(tl.float32)
        low = weighted(low * by, low_scale, dtype, ROUNDING).to(dtype).to(tl.float32)
        high = weighted(high * by, high_scale, dtype, ROUNDING).to(dtype).to(tl.float32)
    low, high = turned(low, high, tables)
    return low.to(dtype), high.to(dtype)


@jit
def halves_encoded(low, high, scales, stored, cache):  # type: ignore[no-untyped-def]
    """Both halves of heads [tokens, heads, dims] as codes of a cache; their scales [tokens, heads, 1] go where `stored`
    says. Beyond its width a half is zero."""
    codes: tl.constexpr = cache.dtype.element_ty
    low, high = low.to(tl.float32), high.to(tl.float32)
    scale = scale_of(tl.max(tl.maximum(tl.abs(low), tl.abs(high)), axis=2, keep_dims=True), codes)
    tl.store(scales, scale.to(tl.uint8), mask=stored)
    return encoded(low, scale, codes), encoded(high, scale, codes)


@jit(do_not_specialize=["slots", "tokens", "q_heads", "kv_heads", "q_programs"])
def place_kv_kernel(
    q_out: tl.tensor,  # [tokens, q_heads, head_dim], contiguous
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    k_scales: tl.tensor,  # of a cache of codes, else None
    v_scales: tl.tensor,
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    q_weight: tl.tensor,  # or None
    k_weight: tl.tensor,
    slots: tl.tensor,
    tokens: tl.tensor,
    q_heads: tl.tensor,
    kv_heads: tl.tensor,
    q_programs: tl.tensor,  # that some tokens' queries take; their keys and values take those after
    q_token_stride: tl.tensor,
    q_head_stride: tl.tensor,
    k_token_stride: tl.tensor,
    k_head_stride: tl.tensor,
    v_token_stride: tl.tensor,
    v_head_stride: tl.tensor,
    cos_stride: tl.tensor,
    sin_stride: tl.tensor,
    k_block_stride: tl.tensor,
    k_slot_stride: tl.tensor,
    k_cache_head_stride: tl.tensor,
    v_block_stride: tl.tensor,
    v_slot_stride: tl.tensor,
    v_cache_head_stride: tl.tensor,
    eps: tl.tensor,
    ROUNDING: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HALF: tl.constexpr,  # half of head_dim
    HIGH: tl.constexpr,  # where the tables' second half begins: HALF, or 0 where it is the first
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
) -> None:
    fetch_weight(q_weight, HALF * 2, BLOCK_HALF * 2)
    fetch_weight(k_weight, HALF * 2, BLOCK_HALF * 2)
    await_inputs()
    token = (tl.program_id(0).to(tl.int64) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS))[:, None, None]
    program = tl.program_id(1)
    lane = tl.arange(0, BLOCK_HEADS)[None, :, None]
    dim = tl.arange(0, BLOCK_HALF)[None, None, :]
    there = (token < tokens) & (dim < HALF)
    cos_at, sin_at = cos + token * cos_stride + dim, sin + token * sin_stride + dim
    tables = tables_of(cos_at, sin_at, there, HIGH)
    if program < q_programs:
        head = (program * BLOCK_HEADS + lane).to(tl.int64)
        inside = there & (head < q_heads)
        at = token * q_token_stride + head * q_head_stride + dim
        low, high = normed_and_turned(q, at, inside, dim, q_weight, eps, tables, ROUNDING, HALF)
        to = q_out + (token * q_heads + head) * (HALF * 2) + dim
        tl.store(to, low, mask=inside)
        tl.store(to + HALF, high, mask=inside)
    else:
        head = ((program - q_programs) * BLOCK_HEADS + lane).to(tl.int64)
        slot = tl.load(slots + token, mask=token < tokens, other=-1)
        inside = there & (head < kv_heads) & (slot >= 0)
        block, offset = slot // BLOCK_SIZE, slot % BLOCK_SIZE
        at = token * k_token_stride + head * k_head_stride + dim
        key_low, key_high = normed_and_turned(k, at, inside, dim, k_weight, eps, tables, ROUNDING, HALF)
        scales_at, stored = offset * kv_heads + head, (token < tokens) & (head < kv_heads) & (slot >= 0)
        if k_scales is not None:
            key_low, key_high = halves_encoded(
                key_low, key_high, k_scales + block * k_block_stride + scales_at, stored, k_cache
            )
        keys_to = k_cache + block * k_block_stride + offset * k_slot_stride + head * k_cache_head_stride + dim
        tl.store(keys_to, key_low, mask=inside)
        tl.store(keys_to + HALF, key_high, mask=inside)
        read = v + token * v_token_stride + head * v_head_stride + dim
        value_low, value_high = tl.load(read, mask=inside, other=0.0), tl.load(read + HALF, mask=inside, other=0.0)
        if v_scales is not None:
            value_low, value_high = halves_encoded(
                value_low, value_high, v_scales + block * v_block_stride + scales_at, stored, v_cache
            )
        values_to = v_cache + block * v_block_stride + offset * v_slot_stride + head * v_cache_head_stride + dim
        tl.store(values_to, value_low, mask=inside)
        tl.store(values_to + HALF, value_high, mask=inside)


def place_kv(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tables: tuple[Tensor, Tensor],
    norms: HeadNorms | None,
    caches: tuple[Tensor, Tensor],
    slots: Tensor,
) -> Tensor:
    """The queries, normed and turned, contiguous; keys, normed and turned, and values go to the caches.

    q `[tokens, heads, head_dim]`, k and v `[tokens, kv_heads, head_dim]`; `tables`, cosines and sines `[tokens,
    head_dim]` or half as wide, as in `engine.kernels.rotary`; caches and slots as in `engine.kernels.store_kv`. Nothing
    waits for the device.
    """
    q, k, v, cos, sin = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v, *tables))
    tokens, q_heads, head_dim = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if not tokens:
        return out
    kv_heads, half = k.shape[1], head_dim // 2
    (k_cache, k_scales), (v_cache, v_scales) = map(apart, caches)
    blocks = block_tokens, block_heads, _ = cut(q_heads, half)
    q_programs, kv_programs = -(-q_heads // block_heads), -(-kv_heads // block_heads)
    q_weight, k_weight, eps, rounding = norms or (None, None, 0.0, Rounding.NONE)
    read = q, k, v, cos, sin, q_weight, k_weight, slots, tokens, q_heads, kv_heads, q_programs
    laid = *strides(q), *strides(k), *strides(v), *strides(cos), *strides(sin)
    cached = *k_cache.stride()[:3], *v_cache.stride()[:3]
    high = half if cos.shape[-1] == head_dim else 0
    sizes = eps, rounding.value, k_cache.shape[1], half, high, *blocks
    grid = -(-tokens // block_tokens), q_programs + kv_programs
    # torch rounds each product by itself.
    written = out, k_cache, v_cache, k_scales, v_scales
    launch(place_kv_kernel, grid, (*written, *read, *laid, *cached, *sizes), fused=False)
    return out
