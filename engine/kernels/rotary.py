"""Triton kernel of rotary position embedding (https://arxiv.org/abs/2104.09864): queries and keys in one launch, each
head's dimension i turned with dimension i + head_dim / 2, as transformers' models of the Llama kind do."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import jit, launch, next_power_of_two, strides, tl

PAIRS = 1024  # of dimensions that a program turns: 8 a thread of four warps


@jit
def tables_of(cos_at, sin_at, there, HIGH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Cosines and sines [tokens, 1, dims] of a head's first half, then of its second, which begin `HIGH` behind."""
    low_cos, high_cos = tl.load(cos_at, mask=there, other=0.0), tl.load(cos_at + HIGH, mask=there, other=0.0)
    low_sin, high_sin = tl.load(sin_at, mask=there, other=0.0), tl.load(sin_at + HIGH, mask=there, other=0.0)
    return low_cos, low_sin, high_cos, high_sin


@jit
def turned(low, high, tables):  # type: ignore[no-untyped-def]
    """Both halves of heads [tokens, heads, dims] in float32, turned. A product is rounded to the dtype of the tables,
    which is the wider one."""
    low_cos, low_sin, high_cos, high_sin = tables
    wide: tl.constexpr = high_sin.dtype
    turned_low = (low * low_cos.to(tl.float32)).to(wide).to(tl.float32)
    turned_low -= (high * low_sin.to(tl.float32)).to(wide).to(tl.float32)
    turned_high = (high * high_cos.to(tl.float32)).to(wide).to(tl.float32)
    turned_high += (low * high_sin.to(tl.float32)).to(wide).to(tl.float32)
    return turned_low, turned_high


@jit
def turn_heads(  # type: ignore[no-untyped-def]
    out,
    x,
    strides,
    token,
    tokens,
    first,
    heads,
    tables,
    dim,
    HALF: tl.constexpr,
    SIDE_BY_SIDE: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
):
    """Turns heads [first, first + BLOCK_HEADS) of some tokens of a batch entry, whose first elements are at `out` and
    `x`, by the tokens' tables; what is summed is rounded to the dtype of x."""
    x_head_stride, x_token_stride = strides
    head = (first + tl.arange(0, BLOCK_HEADS))[None, :, None]
    inside = (token < tokens) & (head < heads) & (dim < HALF)
    at = x + token * x_token_stride + head.to(tl.int64) * x_head_stride + dim * (2 if SIDE_BY_SIDE else 1)
    low = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(at + (1 if SIDE_BY_SIDE else HALF), mask=inside, other=0.0).to(tl.float32)
    low, high = turned(low, high, tables)
    to = out + (token * heads + head) * (HALF * 2) + dim
    tl.store(to, low.to(out.dtype.element_ty), mask=inside)
    tl.store(to + HALF, high.to(out.dtype.element_ty), mask=inside)


@jit(do_not_specialize=["tokens", "q_heads", "k_heads", "q_programs"])
def rotary_kernel(
    q_out: tl.tensor,  # [batch, tokens, heads, head_dim], contiguous
    k_out: tl.tensor,
    q: tl.tensor,
    k: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    tokens: tl.tensor,
    q_heads: tl.tensor,
    k_heads: tl.tensor,
    q_programs: tl.tensor,  # that some tokens' queries take; their keys take those after
    q_batch_stride: tl.tensor,
    q_head_stride: tl.tensor,
    q_token_stride: tl.tensor,
    k_batch_stride: tl.tensor,
    k_head_stride: tl.tensor,
    k_token_stride: tl.tensor,
    cos_batch_stride: tl.tensor,
    cos_token_stride: tl.tensor,
    sin_batch_stride: tl.tensor,
    sin_token_stride: tl.tensor,
    HALF: tl.constexpr,  # half of head_dim
    HIGH: tl.constexpr,  # where the tables' second half begins: HALF, or 0 where it is the first
    SIDE_BY_SIDE: tl.constexpr,  # pairs of x lie so: they are parted, the first of all pairs come first
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
) -> None:
    await_inputs()
    token = (tl.program_id(0).to(tl.int64) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS))[:, None, None]
    program, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    dim = tl.arange(0, BLOCK_HALF)[None, None, :]
    there = (token < tokens) & (dim < HALF)
    cos_at = cos + batch * cos_batch_stride + token * cos_token_stride + dim
    sin_at = sin + batch * sin_batch_stride + token * sin_token_stride + dim
    tables = tables_of(cos_at, sin_at, there, HIGH)
    out_at = batch * tokens * (HALF * 2)
    if program < q_programs:
        to, x, strides = q_out + out_at * q_heads, q + batch * q_batch_stride, (q_head_stride, q_token_stride)
        first, heads = program * BLOCK_HEADS, q_heads
    else:
        to, x, strides = k_out + out_at * k_heads, k + batch * k_batch_stride, (k_head_stride, k_token_stride)
        first, heads = (program - q_programs) * BLOCK_HEADS, k_heads
    turn_heads(to, x, strides, token, tokens, first, heads, tables, dim, HALF, SIDE_BY_SIDE, BLOCK_HEADS)


def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, neighbours: bool = False) -> tuple[Tensor, Tensor]:
    """Queries and keys [batch, heads, tokens, head_dim], turned; new tensors that lie as [batch, tokens, heads,
    head_dim]. Pairs are (i, i + head_dim / 2), or `neighbours` (2 i, 2 i + 1), which end as those. `cos` and `sin`
    [batch or 1, tokens, head_dim], or half as wide where both halves of a head share them, of the dtype of q or
    float32. Nothing waits for the device."""
    batch, q_heads, tokens, head_dim = q.shape
    q, k, cos, sin = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, cos, sin))
    q_out, k_out = (
        torch.empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3], dtype=x.dtype, device=x.device) for x in (q, k)
    )
    out = q_out.transpose(1, 2), k_out.transpose(1, 2)
    if not q.numel():
        return out
    half, k_heads = head_dim // 2, k.shape[1]
    blocks = block_tokens, block_heads, _ = cut(q_heads, half)
    q_programs, k_programs = -(-q_heads // block_heads), -(-k_heads // block_heads)
    heads, laid = (tokens, q_heads, k_heads, q_programs), (*strides(q), *strides(k), *strides(cos), *strides(sin))
    grid = -(-tokens // block_tokens), q_programs + k_programs, batch
    values = (
        q_out,
        k_out,
        q,
        k,
        cos,
        sin,
        *heads,
        *laid,
        half,
        half if cos.shape[-1] == head_dim else 0,
        neighbours,
        *blocks,
    )
    launch(rotary_kernel, grid, values, fused=False)  # torch rounds each product by itself
    return out


def cut(heads: int, half: int) -> tuple[int, int, int]:
    """Tokens, heads and padded dimensions of half a head that a program turns."""
    block_half = next_power_of_two(half)
    block_heads = min(next_power_of_two(heads), max(1, PAIRS // block_half))
    return max(1, PAIRS // (block_half * block_heads)), block_heads, block_half
