"""Triton kernel that writes a step's keys and values into the paged KV cache."""

from __future__ import annotations

from torch import Tensor

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import jit, launch, next_power_of_two, tl
from engine.kernels.kv_codes import apart, encoded, scale_of

ELEMENTS_A_PROGRAM = 2048  # of K, and as many of V: 16 a thread of four warps


@jit(do_not_specialize=["slots"])  # a slice of a step's metadata, of any alignment
def store_kv_kernel(
    k: tl.tensor,
    v: tl.tensor,
    k_cache: tl.tensor,
    v_cache: tl.tensor,
    k_scales: tl.tensor,  # of a cache of codes, else None
    v_scales: tl.tensor,
    slots: tl.tensor,
    k_token_stride: tl.tensor,
    k_head_stride: tl.tensor,
    v_token_stride: tl.tensor,
    v_head_stride: tl.tensor,
    k_block_stride: tl.tensor,
    k_slot_stride: tl.tensor,
    k_cache_head_stride: tl.tensor,
    v_block_stride: tl.tensor,
    v_slot_stride: tl.tensor,
    v_cache_head_stride: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    LATENT: tl.constexpr,  # one cache is both, and a token's key its value
) -> None:
    await_inputs()
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    block, offset = slot // BLOCK_SIZE, slot % BLOCK_SIZE
    heads = tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)[:, None]
    dims = tl.arange(0, BLOCK_DIM)[None, :]
    inside = (heads < KV_HEADS) & (dims < HEAD_DIM)
    keys = tl.load(k + token * k_token_stride + heads * k_head_stride + dims, mask=inside)
    values = tl.load(v + token * v_token_stride + heads * v_head_stride + dims, mask=inside)
    k_slot = k_cache + block * k_block_stride + offset * k_slot_stride
    v_slot = v_cache + block * v_block_stride + offset * v_slot_stride
    if k_scales is not None:
        codes: tl.constexpr = k_cache.dtype.element_ty
        keys, values = tl.where(inside, keys, 0.0).to(tl.float32), tl.where(inside, values, 0.0).to(tl.float32)
        k_scale = scale_of(tl.max(tl.abs(keys), axis=1, keep_dims=True), codes)
        v_scale = scale_of(tl.max(tl.abs(values), axis=1, keep_dims=True), codes)
        keys, values = encoded(keys, k_scale, codes), encoded(values, v_scale, codes)
        at = offset * KV_HEADS + heads
        tl.store(k_scales + block * k_block_stride + at, k_scale.to(tl.uint8), mask=heads < KV_HEADS)
        if not LATENT:
            tl.store(v_scales + block * v_block_stride + at, v_scale.to(tl.uint8), mask=heads < KV_HEADS)
    tl.store(k_slot + heads * k_cache_head_stride + dims, keys, mask=inside)
    if not LATENT:
        tl.store(v_slot + heads * v_cache_head_stride + dims, values, mask=inside)


def store_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Writes each token's key and value into its slot of the cache, in place.

    k, v: `[tokens, kv_heads, head_dim]`. k_cache, v_cache: `[blocks, block_size, kv_heads, head_dim]`, any strides,
    last dimension contiguous, or of codes (`engine.kernels.kv_codes`). slots: int64 `[tokens]`, block * block_size +
    offset; a negative slot is skipped. Where k_cache is v_cache, k is kept alone.
    """
    if not len(slots):
        return
    k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (k, v))
    _, kv_heads, head_dim = k.shape
    block_dim = next_power_of_two(head_dim)
    block_heads = min(next_power_of_two(kv_heads), max(1, ELEMENTS_A_PROGRAM // block_dim))
    latent = k_cache is v_cache
    (k_cache, k_scales), (v_cache, v_scales) = apart(k_cache), apart(v_cache)
    strides = *k.stride()[:2], *v.stride()[:2], *k_cache.stride()[:3], *v_cache.stride()[:3]
    sizes = k_cache.shape[1], kv_heads, head_dim, block_heads, block_dim, latent
    values = k, v, k_cache, v_cache, k_scales, v_scales, slots, *strides, *sizes
    launch(store_kv_kernel, (len(slots), -(-kv_heads // block_heads)), values)
