"""Triton kernels for linear layers whose weights AWQ packed to 4 bits: the layout is told in
`engine.models.quantization.awq_layout`.

A code less its zero is a whole number of at most 15, exact in any dtype; a group's scale multiplies its sum in float32.
Up to 16 rows the packed weights are what costs: an int32 word's eight columns become eight products with the same tile
of x, product c being columns 8 * word + c, so that a thread unpacks what it multiplies and nothing is exchanged. From
17 rows on they are laid side by side and multiplied at once. Where the outputs fill too few programs for the GPU the
inputs are split too, and a second kernel adds the sums up in a fixed order. Many rows are bound by arithmetic: for them
a kernel unpacks the weights and cuBLAS multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.kernels.attention.tilings import device_facts
from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import jit, launch, tl

COLUMNS = 8  # that share an int32 word
LEAST_K = 16  # of a tensor core's product: groups are multiples of it
FUSED_ROWS = 128  # from about here on unpacking once and cuBLAS should be faster: reasoned, not measured
SINGLE_ROWS = 16  # up to which columns are multiplied one by one
ADDED = 1024  # elements that a program of `add_parts_kernel` adds up


@jit
def steps(words: tl.tensor, zeros: tl.tensor, SHIFT: tl.constexpr, DTYPE: tl.constexpr) -> tl.tensor:
    """Code less zero of one column of each word, exact. `words` [K, words], `zeros` [words]. Codes become floats by
    setting the bits of a power of two above them, which is cheaper than a conversion."""
    if DTYPE.is_fp16() and SHIFT % 8 == 4:  # 1024 + 16 * code: a byte serves both its codes
        code = ((words >> (SHIFT - 4)) & 0xF0 | 0x6400).to(tl.int16).to(tl.float16, bitcast=True)
        zero = ((zeros >> SHIFT) & 15).to(tl.float16) + 64.0
        step = code * 0.0625 - zero[None, :]
    elif DTYPE.is_fp32():
        step = (((words >> SHIFT) & 15) - ((zeros >> SHIFT) & 15)[None, :]).to(tl.float32)
    else:
        POWER: tl.constexpr = 0x6400 if DTYPE.is_fp16() else 0x4300  # 1024 or 128, plus code
        code = ((words >> SHIFT) & 15 | POWER).to(tl.int16).to(DTYPE, bitcast=True)
        zero = ((zeros >> SHIFT) & 15 | POWER).to(tl.int16).to(DTYPE, bitcast=True)
        step = code - zero[None, :]
    return step


@jit
def pair_of_steps(words: tl.tensor, zeros: tl.tensor, PAIR: tl.constexpr, DTYPE: tl.constexpr) -> tl.tensor:
    """The steps of columns 2 * PAIR and 2 * PAIR + 1 of each word."""
    return steps(words, zeros, 4 * PAIR, DTYPE), steps(words, zeros, 16 + 4 * PAIR, DTYPE)


@jit
def side_by_side(  # type: ignore[no-untyped-def]
    t0, t1, t2, t3, t4, t5, t6, t7, ROWS: tl.constexpr, WORDS: tl.constexpr
):
    """Columns 0 to 7 of each word, eight [ROWS, WORDS], as [ROWS, WORDS * 8] in the order of the outputs."""
    even = tl.join(tl.join(t0, t4), tl.join(t2, t6))
    odd = tl.join(tl.join(t1, t5), tl.join(t3, t7))
    return tl.join(even, odd).reshape(ROWS, WORDS * 8)


@jit
def add_columns(even, odd, x, words, zeros, scales, mask, PAIR: tl.constexpr):  # type: ignore[no-untyped-def]
    """Totals [M, words] of columns 2 * PAIR and 2 * PAIR + 1 of each word, plus x times them. `scales` are pointers to
    the words' pairs of scales, held as int32."""
    pair = tl.load(scales + PAIR, mask=mask, other=0)
    low = pair.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    high = (pair >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    evens, odds = pair_of_steps(words, zeros, PAIR, x.dtype)
    even += tl.dot(x, evens, input_precision="ieee") * low[None, :]
    odd += tl.dot(x, odds, input_precision="ieee") * high[None, :]
    return even, odd


@jit(do_not_specialize=["rows"])
def awq_matmul_kernel(
    out: tl.tensor,  # [rows, outputs], or float32 [parts, rows, outputs]
    x: tl.tensor,
    qweight: tl.tensor,
    qzeros: tl.tensor,
    scales: tl.tensor,  # two in an int32, unless JOINED
    bias: tl.tensor,
    rows: tl.tensor,
    inputs: tl.tensor,
    words: tl.tensor,  # outputs // 8
    stride: tl.tensor,  # words between rows of the packed weights and of their zeros
    x_stride: tl.tensor,
    part_inputs: tl.tensor,  # inputs of a program, a multiple of BLOCK_K
    GROUP: tl.constexpr,  # a multiple of BLOCK_K
    JOINED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    await_inputs()
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    part = tl.program_id(2)
    filled = m < rows
    mine = w < words
    first = part * part_inputs
    last = tl.minimum(first + part_inputs, inputs)
    x_rows = x + m.to(tl.int64)[:, None] * x_stride

    n = tl.program_id(1) * BLOCK_W * 8 + tl.arange(0, BLOCK_W * 8)
    within = n < words * 8

    total = tl.zeros([BLOCK_M, BLOCK_W * 8], tl.float32)  # JOINED, or by columns
    t0 = tl.zeros([BLOCK_M, BLOCK_W], tl.float32)
    t1, t2, t3, t4, t5, t6, t7 = t0, t0, t0, t0, t0, t0, t0
    for start in tl.range(first, last, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        tile = tl.load(x_rows + k[None, :], mask=filled[:, None], other=0.0)
        packed = tl.load(qweight + k.to(tl.int64)[:, None] * stride + w[None, :], mask=mine[None, :], other=0)
        group = start // GROUP  # scales are too few to leave int32
        zeros = tl.load(qzeros + group * stride + w, mask=mine, other=0)
        if JOINED:
            scale = tl.load(scales + group * stride * 8 + n, mask=within, other=0.0).to(tl.float32)
            a = pair_of_steps(packed, zeros, 0, x.dtype.element_ty)
            b = pair_of_steps(packed, zeros, 1, x.dtype.element_ty)
            c = pair_of_steps(packed, zeros, 2, x.dtype.element_ty)
            d = pair_of_steps(packed, zeros, 3, x.dtype.element_ty)
            weights = side_by_side(*a, *b, *c, *d, BLOCK_K, BLOCK_W)
            total += tl.dot(tile, weights, input_precision="ieee") * scale[None, :]
        else:
            pairs = scales + (group * stride + w) * 4
            t0, t1 = add_columns(t0, t1, tile, packed, zeros, pairs, mine, 0)
            t2, t3 = add_columns(t2, t3, tile, packed, zeros, pairs, mine, 1)
            t4, t5 = add_columns(t4, t5, tile, packed, zeros, pairs, mine, 2)
            t6, t7 = add_columns(t6, t7, tile, packed, zeros, pairs, mine, 3)
    if not JOINED:
        total = side_by_side(t0, t1, t2, t3, t4, t5, t6, t7, BLOCK_M, BLOCK_W)
    if bias is not None:
        total += tl.load(bias + n, mask=within, other=0.0).to(tl.float32)[None, :]
    row = (part * rows + m).to(tl.int64)
    tl.store(out + row[:, None] * words * 8 + n[None, :], total, mask=filled[:, None] & within[None, :])


@jit(do_not_specialize=["size"])
def add_parts_kernel(
    out: tl.tensor,  # [rows, outputs]
    sums: tl.tensor,  # float32 [parts, rows, outputs]
    bias: tl.tensor,
    size: tl.tensor,  # rows * outputs
    outputs: tl.tensor,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    await_inputs()
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    source = sums + at
    total = tl.zeros([BLOCK], tl.float32)
    for _ in tl.static_range(PARTS):
        total += tl.load(source, mask=mask, other=0.0)
        source += size
    if bias is not None:
        total += tl.load(bias + at % outputs, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + at, total, mask=mask)


@jit
def awq_unpack_kernel(
    out: tl.tensor,  # [inputs, outputs]
    qweight: tl.tensor,
    qzeros: tl.tensor,
    scales: tl.tensor,
    words: tl.tensor,  # outputs // 8
    stride: tl.tensor,  # words between rows of the packed weights and of their zeros
    GROUP: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,  # divides GROUP
) -> None:
    await_inputs()
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = n < words * 8
    group = tl.program_id(1) * BLOCK_K // GROUP
    shift = (n & 1) * 16 + ((n & 7) >> 1) * 4
    row = k.to(tl.int64)[:, None]
    codes = (tl.load(qweight + row * stride + (n // 8)[None, :], mask=mask[None, :], other=0) >> shift[None, :]) & 15
    zeros = (tl.load(qzeros + group * stride + n // 8, mask=mask, other=0) >> shift) & 15
    scale = tl.load(scales + group * stride * 8 + n, mask=mask, other=0.0).to(tl.float32)
    weights = (codes - zeros[None, :]).to(tl.float32) * scale[None, :]
    tl.store(out + row * words * 8 + n[None, :], weights, mask=mask[None, :])


@dataclass(frozen=True, slots=True)
class Tiling:
    """How one launch is cut: rows and words a tile, inputs at a time, warps a program, pipeline stages."""

    block_m: int
    block_w: int
    block_k: int
    num_warps: int
    num_stages: int


# By the most rows. A warp of the first covers 8 words, 64 columns; none spills registers where `make kernels` looks.
TILINGS = {SINGLE_ROWS: Tiling(16, 32, 128, 4, 4), 32: Tiling(32, 16, 128, 4, 3), FUSED_ROWS: Tiling(64, 16, 64, 4, 3)}
UNPACK_N, UNPACK_K = 256, 32


def tiling(rows: int, group: int) -> Tiling:
    """The tiling of a launch; inputs at a time divide the group."""
    chosen = next(TILINGS[most] for most in TILINGS if rows <= most)
    return replace(chosen, block_k=min(chosen.block_k, group & -group))


def parts(programs: int, blocks: int, processors: int) -> int:
    """Over how many programs to split the inputs, of `blocks` blocks, where `programs` tiles cover the outputs.

    As many as run at once, two on a processor (their registers allow no more): one program above that would make the
    GPU wait for it.
    """
    return max(1, min(2 * processors // programs, blocks))


def awq_matmul(
    x: Tensor,
    qweight: Tensor,
    qzeros: Tensor,
    scales: Tensor,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    processors: int | None = None,
) -> Tensor:
    """x [..., inputs] times the packed weights, plus the bias, in x's dtype, float16 or bfloat16; sums are float32.

    The packed tensors are contiguous, or the same columns of contiguous ones. The group is a multiple of 16. `out`
    [..., outputs], contiguous, is written and returned where it is given; `processors` takes the place of what the
    device has. Gives the same bits each time, and never waits for the device, so it can be captured in a CUDA graph.
    """
    words = qweight.shape[1]
    shape = *x.shape[:-1], words * COLUMNS
    out = torch.empty(shape, dtype=x.dtype, device=x.device) if out is None else out
    target, x = out.view(-1, words * COLUMNS), x.reshape(-1, x.shape[-1])
    x = x if x.stride(-1) == 1 else x.contiguous()
    rows, inputs = x.shape
    if not rows:
        return out
    if rows > FUSED_ROWS:
        weight = awq_unpack(qweight, qzeros, scales, x.dtype)
        torch.mm(x, weight, out=target) if bias is None else torch.addmm(bias, x, weight, out=target)
        return out
    group = inputs // qzeros.shape[0]
    tiles = tiling(rows, group)
    joined = tiles.block_m > SINGLE_ROWS
    grid = (-(-rows // tiles.block_m), -(-words // tiles.block_w))
    blocks = inputs // tiles.block_k
    split = parts(grid[0] * grid[1], blocks, processors or device_facts(x.device)[1])
    part_inputs = -(-blocks // split) * tiles.block_k
    split = -(-inputs // part_inputs)
    sums = torch.empty(split, *target.shape, dtype=torch.float32, device=x.device) if split > 1 else target
    tensors = sums, x, qweight, qzeros, scales if joined else scales.view(torch.int32), bias if split == 1 else None
    sizes = rows, inputs, words, qweight.stride(0), x.stride(0), part_inputs, group
    cut = joined, tiles.block_m, tiles.block_w, tiles.block_k
    values, warps, stages = (*tensors, *sizes, *cut), tiles.num_warps, tiles.num_stages
    launch(awq_matmul_kernel, (*grid, split), values, num_warps=warps, num_stages=stages)
    if split > 1:
        added = target, sums, bias, out.numel(), words * COLUMNS, split, ADDED
        launch(add_parts_kernel, (-(-out.numel() // ADDED),), added, num_warps=4)
    return out


def awq_unpack(
    qweight: Tensor, qzeros: Tensor, scales: Tensor, dtype: torch.dtype, out: Tensor | None = None
) -> Tensor:
    """The weights [inputs, outputs], rounded once to `dtype`: the transpose of `awq_layout.dequantize`, bit for bit."""
    inputs, words = qweight.shape
    out = torch.empty(inputs, words * COLUMNS, dtype=dtype, device=qweight.device) if out is None else out
    group = inputs // qzeros.shape[0]
    block_k = min(UNPACK_K, group & -group)
    grid, sizes = (
        (-(-words * COLUMNS // UNPACK_N), inputs // block_k),
        (words, qweight.stride(0), group, UNPACK_N, block_k),
    )
    launch(awq_unpack_kernel, grid, (out, qweight, qzeros, scales, *sizes), num_warps=4)
    return out
