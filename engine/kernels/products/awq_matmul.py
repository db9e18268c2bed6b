"""Triton kernels for linear layers whose weights AWQ packed to 4 bits: the layout is told in
`engine.models.quantization.awq_layout`.

A code becomes a float by setting the bits of a power of two above it; one operation takes two codes that lie 16 bits
apart. Up to 16 rows the packed weights are what costs: an int32 word's eight columns become eight products with the
same tile of x, product c being columns 8 * word + c, so that a thread unpacks what it multiplies and nothing is
exchanged. Powers and zeros are taken off afterwards, in float32: a group's (code - zero) * x add up to the sum of
code * x less zero times the sum of x. From 17 rows on the weights are laid side by side, less their zeros, and
multiplied at once.

Where the outputs fill too few programs for the GPU the inputs are split too, and the sums are added up in a fixed
order: of up to 16 rows by whichever program is done last, of more by a second kernel. Many rows are bound by
arithmetic: for them a kernel unpacks the weights and cuBLAS multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.kernels.attention.splits import arrives_last
from engine.kernels.attention.tilings import device_facts
from engine.kernels.dependent_launch import await_inputs, interpreted
from engine.kernels.jit import constant, jit, launch, tl
from engine.kernels.products.split_inputs import ADDED, add_parts, add_parts_kernel, arrivals, parts, store_product

COLUMNS = 8  # that share an int32 word
LEAST_K = 16  # of a tensor core's product: groups are multiples of it
FUSED_ROWS = 128  # from about here on unpacking once and cuBLAS should be faster: reasoned, not measured
SINGLE_ROWS = 16  # up to which columns are multiplied one by one


def assembly(power: int, wide: tuple[int, ...]) -> str:
    """PTX that makes of a thread's words at inputs k and k + 1 eight registers, of column c the numbers at both, which
    is how a tensor core takes them: the compiler, left alone, takes one code at a time. `power` are the bits above the
    codes, of two numbers; pairs of columns in `wide` are left 16 times as large, for which a shift serves two pairs."""
    code = ["prmt.b32 even, $8, $9, 0x5410", "prmt.b32 odd, $8, $9, 0x7632"]
    for pair in range(4):
        shift, mask = (4 * pair - 4, 0x00F000F0) if pair in wide else (4 * pair, 0x000F000F)
        for column, half in enumerate(("even", "odd"), 2 * pair):
            code.append(f"shr.b32 moved, {half}, {shift}")
            code.append(f"lop3.b32 ${column}, moved, {mask:#x}, {power:#x}, 0xEA")  # moved & mask | power
    return "{ .reg .b32 even, odd, moved; " + "".join(f"{line}; " for line in code) + "}"


# 1024 + code, or 1024 + 16 * code, in float16; 128 + code in bfloat16, whose mantissas hold no code shifted by 4.
IN_HALVES, IN_BFLOATS = constant(assembly(0x64006400, (1, 3))), constant(assembly(0x43004300, ()))
REGISTERS = constant("=r,=r,=r,=r,=r,=r,=r,=r,r,r")
ASSEMBLED = constant(not interpreted)


@jit
def half(words: tl.tensor, ODD: tl.constexpr, DTYPE: tl.constexpr) -> tl.tensor:
    """The lower or the upper 16 bits of each word, as a float."""
    return (words >> (16 * ODD)).to(tl.int16).to(DTYPE, bitcast=True)


@jit
def pair_of_numbers(words, PAIR: tl.constexpr, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Columns 2 * PAIR and 2 * PAIR + 1 of each word as floats: code + 128, in float16 1024 + code, of which odd pairs
    have 1024 + 16 * code."""
    if DTYPE.is_fp32():
        even, odd = (words >> (4 * PAIR)) & 15, (words >> (4 * PAIR + 16)) & 15
        return even.to(DTYPE) + 128.0, odd.to(DTYPE) + 128.0
    else:
        if DTYPE.is_bf16():
            both = (words >> (4 * PAIR)) & 0x000F000F | 0x43004300
        elif PAIR % 2:
            both = (words >> (4 * PAIR - 4)) & 0x00F000F0 | 0x64006400
        else:
            both = (words >> (4 * PAIR)) & 0x000F000F | 0x64006400
        return half(both, 0, DTYPE), half(both, 1, DTYPE)


@jit
def numbers(words: tl.tensor, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The eight columns of each word as `pair_of_numbers` has them."""
    if ASSEMBLED and DTYPE.is_fp16():
        columns = tl.inline_asm_elementwise(IN_HALVES, REGISTERS, [words], (tl.float16,) * 8, is_pure=True, pack=2)
    elif ASSEMBLED and DTYPE.is_bf16():
        columns = tl.inline_asm_elementwise(IN_BFLOATS, REGISTERS, [words], (tl.bfloat16,) * 8, is_pure=True, pack=2)
    else:
        first, second = pair_of_numbers(words, 0, DTYPE), pair_of_numbers(words, 1, DTYPE)
        third, fourth = pair_of_numbers(words, 2, DTYPE), pair_of_numbers(words, 3, DTYPE)
        columns = *first, *second, *third, *fourth
    return columns


@jit
def zero_number(zeros: tl.tensor, COLUMN: tl.constexpr, DTYPE: tl.constexpr) -> tl.tensor:
    """What `numbers` makes of a code that is a column's zero, in float32."""
    LIES: tl.constexpr = 16 * (COLUMN % 2) + 4 * (COLUMN // 2)
    WIDE: tl.constexpr = DTYPE.is_fp16() and COLUMN // 2 % 2 == 1
    ONE: tl.constexpr = (17 if WIDE else 13) if DTYPE.is_fp16() else 16  # the place of 1 in the mantissa, or of 16
    POWER: tl.constexpr = 0x44800000 if DTYPE.is_fp16() else 0x43000000  # 1024, or 128
    if LIES < ONE:
        moved = zeros << (ONE - LIES)
    else:
        moved = zeros >> (LIES - ONE)
    return (moved & (15 << ONE) | POWER).to(tl.float32, bitcast=True)


@jit
def add_pair(totals, x, sums, columns, zeros, scales, PAIR: tl.constexpr):  # type: ignore[no-untyped-def]
    """Totals [M, words] of columns 2 * PAIR and 2 * PAIR + 1 of each word, plus x times them. `sums` of x, in every
    column; `columns` as `numbers` has them; `scales` two in an int32."""
    even, odd = totals
    low, high = half(scales, 0, tl.float16).to(tl.float32), half(scales, 1, tl.float16).to(tl.float32)
    if x.dtype.is_fp16() and PAIR % 2:
        low, high = low * 0.0625, high * 0.0625
    low_zero, high_zero = zero_number(zeros, 2 * PAIR, x.dtype), zero_number(zeros, 2 * PAIR + 1, x.dtype)
    even += (tl.dot(x, columns[2 * PAIR], input_precision="ieee") - sums * low_zero[None, :]) * low[None, :]
    odd += (tl.dot(x, columns[2 * PAIR + 1], input_precision="ieee") - sums * high_zero[None, :]) * high[None, :]
    return even, odd


@jit
def pair_of_steps(words, zeros, PAIR: tl.constexpr, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Codes less zeros of columns 2 * PAIR and 2 * PAIR + 1 of each word, exact. `zeros` [words]."""
    even, odd = pair_of_numbers(words, PAIR, DTYPE)
    low, high = pair_of_numbers(zeros, PAIR, DTYPE)
    if DTYPE.is_fp16() and PAIR % 2:
        even, odd, low, high = even * 0.0625, odd * 0.0625, low * 0.0625, high * 0.0625
    return even - low[None, :], odd - high[None, :]


@jit
def side_by_side(  # type: ignore[no-untyped-def]
    t0, t1, t2, t3, t4, t5, t6, t7, ROWS: tl.constexpr, WORDS: tl.constexpr
):
    """Columns 0 to 7 of each word, eight [ROWS, WORDS], as [ROWS, WORDS * 8] in the order of the outputs."""
    even = tl.join(tl.join(t0, t4), tl.join(t2, t6))
    odd = tl.join(tl.join(t1, t5), tl.join(t3, t7))
    return tl.join(even, odd).reshape(ROWS, WORDS * 8)


@jit(do_not_specialize=["rows", "parts"])
def awq_matmul_kernel(
    out: tl.tensor,  # [rows, outputs]
    sums: tl.tensor,  # float32 [parts, rows, outputs]; None of one part
    arrived: tl.tensor,  # int32, zero before and after: how many of a tile's parts are stored; None: others add them up
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
    parts: tl.tensor,
    GROUP: tl.constexpr,  # a multiple of BLOCK_K
    JOINED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    await_inputs()
    DTYPE: tl.constexpr = x.dtype.element_ty
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
            a, b = pair_of_steps(packed, zeros, 0, DTYPE), pair_of_steps(packed, zeros, 1, DTYPE)
            c, d = pair_of_steps(packed, zeros, 2, DTYPE), pair_of_steps(packed, zeros, 3, DTYPE)
            weights = side_by_side(*a, *b, *c, *d, BLOCK_K, BLOCK_W)
            total += tl.dot(tile, weights, input_precision="ieee") * scale[None, :]
        else:
            pairs = scales + (group * stride + w) * 4
            s0, s1 = tl.load(pairs, mask=mine, other=0), tl.load(pairs + 1, mask=mine, other=0)
            s2, s3 = tl.load(pairs + 2, mask=mine, other=0), tl.load(pairs + 3, mask=mine, other=0)
            x_sums = tl.dot(tile, tl.full([BLOCK_K, BLOCK_W], 1.0, DTYPE), input_precision="ieee")
            columns = numbers(packed, DTYPE)
            t0, t1 = add_pair((t0, t1), tile, x_sums, columns, zeros, s0, 0)
            t2, t3 = add_pair((t2, t3), tile, x_sums, columns, zeros, s1, 1)
            t4, t5 = add_pair((t4, t5), tile, x_sums, columns, zeros, s2, 2)
            t6, t7 = add_pair((t6, t7), tile, x_sums, columns, zeros, s3, 3)
    if not JOINED:
        total = side_by_side(t0, t1, t2, t3, t4, t5, t6, t7, BLOCK_M, BLOCK_W)
    outputs = words * 8
    store_product(out, sums, total, bias, (m, n, filled, within), rows, outputs, part)
    if sums is not None and arrived is not None:
        last_here = arrives_last(arrived + tl.program_id(1), parts)
        if last_here:
            add_parts(out, sums, bias, rows, rows.to(tl.int64) * outputs, outputs, parts, n, within)


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
TILINGS = {SINGLE_ROWS: Tiling(16, 32, 128, 4, 3), 32: Tiling(32, 16, 64, 4, 3), FUSED_ROWS: Tiling(64, 16, 64, 4, 3)}
UNPACK_N, UNPACK_K = 256, 32
FEW_ROWS = 8  # of which parts are quickly added up
THREE = 80, 90, 100, 103  # architectures whose multiprocessors have shared memory for three programs of few rows


def tiling(rows: int, group: int) -> Tiling:
    """The tiling of a launch; inputs at a time divide the group."""
    chosen = next(TILINGS[most] for most in TILINGS if rows <= most)
    return replace(chosen, block_k=min(chosen.block_k, group & -group))


def programs_at_once(rows: int, sm: int) -> int:
    """Programs that a multiprocessor is to hold side by side: as many as it can, but of more rows no more than two, as
    the parts to add up are many as they are."""
    return 3 if rows <= FEW_ROWS and sm in THREE else 2


def awq_matmul(
    x: Tensor,
    qweight: Tensor,
    qzeros: Tensor,
    scales: Tensor,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    processors: int | None = None,
    sm: int | None = None,
) -> Tensor:
    """x [..., inputs] times the packed weights, plus the bias, in x's dtype, float16 or bfloat16; sums are float32.

    The packed tensors are contiguous, or the same columns of contiguous ones. The group is a multiple of 16. `out`
    [..., outputs], contiguous, is written and returned where it is given; `processors` and `sm` take the place of what
    the device has. Gives the same bits each time, and never waits for the device, so it can be captured in a CUDA
    graph. Calls on a device are for one stream, or for streams that wait for one another.
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
    group, facts = inputs // qzeros.shape[0], device_facts(x.device)
    tiles = tiling(rows, group)
    joined = tiles.block_m > SINGLE_ROWS
    grid = (-(-rows // tiles.block_m), -(-words // tiles.block_w))
    blocks = inputs // tiles.block_k
    at_once = programs_at_once(rows, sm or facts[0]) * (processors or facts[1])
    part_inputs = -(-blocks // parts(grid[0] * grid[1], blocks, at_once)) * tiles.block_k
    split = -(-inputs // part_inputs)
    sums = torch.empty(split, *target.shape, dtype=torch.float32, device=x.device) if split > 1 else None
    arrived = None if joined or sums is None else arrivals(x.device, grid[1])
    tensors = target, sums, arrived, x, qweight, qzeros, scales if joined else scales.view(torch.int32)
    added = joined and sums is not None
    sizes = rows, inputs, words, qweight.stride(0), x.stride(0), part_inputs, split, group
    cut = joined, tiles.block_m, tiles.block_w, tiles.block_k
    values, warps, stages = (*tensors, None if added else bias, *sizes, *cut), tiles.num_warps, tiles.num_stages
    launch(awq_matmul_kernel, (*grid, split), values, num_warps=warps, num_stages=stages)
    if added:
        adding = target, sums, bias, out.numel(), words * COLUMNS, split, ADDED
        launch(add_parts_kernel, (-(-out.numel() // ADDED),), adding, num_warps=4)
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
