"""Triton kernels for linear layers whose weights AWQ packed to 4 bits, in the order that
`engine.models.quantization.awq_tiles` tells: a thread reads sixteen bytes at a time, and what it reads is what it hands
to the tensor cores, so nothing is exchanged and no two threads want the same bank.

A code becomes a float by setting the bits of a power of two above it, and one addition takes power and zero off again;
each of these operations does two codes. What is multiplied is exact, and a group's scale is applied to its sums, in
float32; only where groups are no multiples of a tile's inputs the weights are rounded first, as dequantizing does.

The weights stand on the left of the product, sixteen outputs by sixteen inputs, so that one row of x wastes the least.
A program has a few outputs and each of its warps a share of the inputs, as a batch of small products has: their sums
are added up at its end, in a fixed order, and no program waits for another. Of more rows all warps read the same ones,
and share the outputs. Many rows are bound by arithmetic: for them a kernel unpacks the weights and cuBLAS multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.kernels.dependent_launch import await_inputs, fetch_ahead, interpreted
from engine.kernels.jit import constant, jit, launch, tl
from engine.kernels.products.gating import gated_width, outputs_of, store_product
from engine.kernels.silu_mul import Activation

OUTPUTS, INPUTS, WORDS = 16, 64, 128  # of a tile
PLANE = constant(16)  # inputs of a tensor core's product; a tile has four planes of them, and groups are multiples
FUSED_ROWS = 128  # from about here on unpacking once and cuBLAS should be faster: reasoned, not measured
ASSEMBLED = constant(not interpreted)


def assembly(power: int, one: int, kind: str) -> str:
    """PTX that makes of a word, $4, its four planes, in each register two numbers of `kind`: a code with the bits of
    `power` above it, plus what $5 holds, in twos as they do."""
    code = [f"mov.b32 one, {one:#x}"]
    for plane in range(4):
        code.append(f"shr.b32 moved, $4, {4 * plane}")
        code.append(f"lop3.b32 moved, moved, 0x000F000F, {power:#x}, 0xEA")  # moved & mask | power
        code.append(f"fma.rn.{kind} ${plane}, moved, one, $5")  # bfloat16 has no addition before sm_90
    return "{ .reg .b32 moved, one; " + "".join(f"{line}; " for line in code) + "}"


# 1024 + code in float16, 128 + code in bfloat16; 1 in each.
HALVES, BFLOATS = 0x64006400, 0x43004300
ADD_HALVES = constant(assembly(HALVES, 0x3C003C00, "f16x2"))
ADD_BFLOATS = constant(assembly(BFLOATS, 0x3F803F80, "bf16x2"))
REGISTERS = constant("=&r,=&r,=&r,=&r,r,r")
# The powers, and the sign above them too, as int32.
POWER_OF_HALVES, POWER_OF_BFLOATS = constant(HALVES), constant(BFLOATS)
NEGATIVE_HALVES, NEGATIVE_BFLOATS = constant((HALVES | 0x80008000) - 2**32), constant((BFLOATS | 0x80008000) - 2**32)


@jit
def half(words: tl.tensor, ODD: tl.constexpr, DTYPE: tl.constexpr) -> tl.tensor:
    """The lower or the upper 16 bits of each word, as a float."""
    return (words >> (16 * ODD)).to(tl.int16).to(DTYPE, bitcast=True)


@jit
def negative(zeros, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """What takes the power and the zero off a number: int32 of the upper halves of `zeros`, twice."""
    upper = zeros & -65536
    both = upper | (upper >> 16)
    return both | (NEGATIVE_BFLOATS if DTYPE.is_bf16() else NEGATIVE_HALVES)


@jit
def four(a, b, c, d):  # type: ignore[no-untyped-def]
    """Four tensors [b, n, k, w] side by side: [b, n, k, 4, w]."""
    both = tl.join(tl.join(a, c), tl.join(b, d))
    return both.reshape(a.shape[0], a.shape[1], a.shape[2], a.shape[3], 4).permute(0, 1, 2, 4, 3)


@jit
def steps(words, less, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Codes, less what `less` takes off, exact.

    words: int32 [shares, tiles of outputs, tiles of inputs, 128]
    less: int32 [shares, outputs], as `negative` makes it
    Returns [shares, outputs, tiles of inputs, 4 planes, 8 words, 2].
    """
    SHARES: tl.constexpr = words.shape[0]
    DOWN: tl.constexpr = words.shape[1] * 16
    ACROSS: tl.constexpr = words.shape[2]
    lying = words.reshape(SHARES, words.shape[1], ACROSS, 8, 4, 2, 2).permute(0, 1, 5, 3, 2, 4, 6)
    lying = lying.reshape(SHARES, DOWN, ACROSS, 8)
    less = tl.broadcast_to(less[:, :, None, None], (SHARES, DOWN, ACROSS, 8))
    if ASSEMBLED:
        CODE: tl.constexpr = ADD_BFLOATS if DTYPE.is_bf16() else ADD_HALVES
        a, b, c, d = tl.inline_asm_elementwise(CODE, REGISTERS, [lying, less], (tl.int32,) * 4, is_pure=True, pack=1)
        pairs = four(a, b, c, d)
        return tl.join(half(pairs, 0, DTYPE), half(pairs, 1, DTYPE))
    else:
        pairs = four(lying, lying >> 4, lying >> 8, lying >> 12) & 0x000F000F
        pairs |= POWER_OF_BFLOATS if DTYPE.is_bf16() else POWER_OF_HALVES
        less = half(less, 0, DTYPE)[:, :, :, None, :]
        return tl.join(half(pairs, 0, DTYPE) + less, half(pairs, 1, DTYPE) + less)


@jit
def rounded(words, scales, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The weights [shares, outputs, 64] of one tile of inputs, rounded once; each plane has a scale and a zero of its
    own: `scales` int32 [shares, outputs, 4]."""
    SHARES: tl.constexpr = words.shape[0]
    DOWN: tl.constexpr = words.shape[1] * 16
    none = negative(tl.zeros([SHARES, DOWN], tl.int32), DTYPE)
    codes = steps(words, none, DTYPE).reshape(SHARES, DOWN, 4, 16).to(tl.float32)
    scale, zero = half(scales, 0, tl.float16).to(tl.float32), (scales >> 16).to(tl.float32)
    return ((codes - zero[:, :, :, None]) * scale[:, :, :, None]).to(DTYPE).reshape(SHARES, DOWN, 64)


@jit
def multiply(weights, columns):  # type: ignore[no-untyped-def]
    """Weights [shares, outputs, inputs] times columns [shares, rows, inputs]: [shares, outputs, rows], by a warp each;
    or, by all warps, [outputs, rows] of the only share."""
    if weights.shape[0] == 1:
        left = weights.reshape(weights.shape[1], weights.shape[2])
        right = columns.reshape(columns.shape[1], columns.shape[2])
        return tl.dot(left, right.trans(), input_precision="ieee")
    else:
        return tl.dot(weights, columns.permute(0, 2, 1), input_precision="ieee")


@jit(do_not_specialize=["rows", "outputs", "share"])
def awq_matmul_kernel(
    out: tl.tensor,  # [rows, outputs]
    x: tl.tensor,
    tiles: tl.tensor,
    scales: tl.tensor,  # int32 [groups, outputs]: of rows that lie `scales_stride` apart
    bias: tl.tensor,  # or None
    rows: tl.tensor,
    inputs: tl.tensor,
    outputs: tl.tensor,
    x_stride: tl.tensor,
    scales_stride: tl.tensor,
    share: tl.tensor,  # tiles of inputs, a multiple of ACROSS
    GROUP: tl.constexpr,
    SHARES: tl.constexpr,  # of the inputs: one, or one a warp
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ACROSS: tl.constexpr,  # tiles of inputs at a time: of one group, or one tile
    STAGES: tl.constexpr,
    AHEAD: tl.constexpr,  # tiles of each share that are fetched before x is there
    GATE: tl.constexpr,  # the activation of the first half of the outputs, or None
) -> None:
    DOWN: tl.constexpr = BLOCK_N // 16
    all_across = (inputs + 63) // 64
    first = tl.arange(0, SHARES) * share
    # Past the last tile, row or input something is read that is there, and multiplied by 0 or stored nowhere.
    down, _ = outputs_of(tl.program_id(0), (outputs + 15) // 16, DOWN, GATE)
    down = tl.minimum(down, (outputs + 15) // 16 - 1).to(tl.int64)
    begin = tiles + down[None, :, None, None] * all_across * 128
    fetched = tl.minimum(first[:, None] + tl.arange(0, AHEAD)[None, :], all_across - 1)
    fetch_ahead(begin + fetched[:, None, :, None] * 128 + (tl.arange(0, 4) * 32)[None, None, None, :])
    n, there = outputs_of(tl.program_id(0), outputs, BLOCK_N, GATE)
    # Of groups of 128 inputs, as nearly all checkpoints have, every one.
    groups = tl.minimum(first[:, None] + 2 * tl.arange(0, AHEAD // 2)[None, :], all_across - 1) * 64 // GROUP
    fetch_ahead(scales + groups[:, :, None] * scales_stride + tl.minimum(n, outputs - 1)[None, None, :])
    await_inputs()
    DTYPE: tl.constexpr = x.dtype.element_ty
    ALIKE: tl.constexpr = GROUP % (64 * ACROSS) == 0  # whether what is multiplied at a time is of one group
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    lines = begin + tl.arange(0, 128)[None, None, None, :]
    x_rows = x + m.to(tl.int64)[None, :, None] * x_stride
    filled = (m < rows)[None, :, None]
    if SHARES == 1:
        total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    else:
        total = tl.zeros([SHARES, BLOCK_N, BLOCK_M], tl.float32)
    for i in tl.range(0, share, ACROSS, num_stages=STAGES):
        at = first + i
        across = tl.minimum(at[:, None] + tl.arange(0, ACROSS)[None, :], all_across - 1)
        words = tl.load(lines + across[:, None, :, None] * 128)
        k = at[:, None] * 64 + tl.arange(0, 64 * ACROSS)[None, :]
        columns = tl.load(x_rows + k[:, None, :], mask=filled & (k < inputs)[:, None, :], other=0.0)
        if ALIKE:
            group = at * 64 // GROUP
            known = (at < all_across)[:, None] & there[None, :]
            scale = tl.load(scales + group[:, None] * scales_stride + n[None, :], mask=known, other=0)
            weights = steps(words, negative(scale, DTYPE), DTYPE).reshape(SHARES, BLOCK_N, 64 * ACROSS)
            times = half(scale, 0, tl.float16).to(tl.float32)
            if SHARES == 1:
                total += multiply(weights, columns) * times.reshape(BLOCK_N)[:, None]
            else:
                total += multiply(weights, columns) * times[:, :, None]
        else:
            begins = at[:, None] * 64 + tl.arange(0, 4)[None, :] * PLANE
            known = (begins < inputs)[:, None, :] & there[None, :, None]
            places = (begins // GROUP)[:, None, :] * scales_stride + n[None, :, None]
            weights = rounded(words, tl.load(scales + places, mask=known, other=0), DTYPE)
            total += multiply(weights, columns)
    product = total if SHARES == 1 else tl.sum(total, axis=0)
    if bias is not None:
        product += tl.load(bias + n, mask=there, other=0.0).to(tl.float32)[:, None]
    store_product(out, product, tl.program_id(0), m, rows, outputs, GATE)


@jit
def awq_unpack_kernel(
    out: tl.tensor,  # [outputs, inputs]
    tiles: tl.tensor,
    scales: tl.tensor,
    inputs: tl.tensor,
    outputs: tl.tensor,
    scales_stride: tl.tensor,
    GROUP: tl.constexpr,
    DOWN: tl.constexpr,  # tiles of a program
) -> None:
    await_inputs()
    DTYPE: tl.constexpr = out.dtype.element_ty
    n = tl.program_id(0) * DOWN * 16 + tl.arange(0, DOWN * 16)
    k = tl.program_id(1) * 64 + tl.arange(0, 64)
    down = tl.minimum(tl.program_id(0) * DOWN + tl.arange(0, DOWN), tl.cdiv(outputs, 16) - 1).to(tl.int64)
    begin = tiles + (down * tl.cdiv(inputs, 64) + tl.program_id(1)) * 128
    words = tl.load(begin[None, :, None, None] + tl.arange(0, 128)[None, None, None, :])
    begins = tl.program_id(1) * 64 + tl.arange(0, 4) * PLANE
    known = (n < outputs)[:, None] & (begins < inputs)[None, :]
    scale = tl.load(scales + (begins // GROUP)[None, :] * scales_stride + n[:, None], mask=known, other=0)
    weights = rounded(words, scale[None, :, :], DTYPE).reshape(DOWN * 16, 64)
    place = out + n.to(tl.int64)[:, None] * inputs + k[None, :]
    tl.store(place, weights, mask=(n < outputs)[:, None] & (k < inputs)[None, :])


@dataclass(frozen=True, slots=True)
class Tiling:
    """How one launch is cut: rows and outputs of a program, shares of the inputs, its warps, tiles of inputs at a time,
    pipeline stages."""

    block_m: int
    block_n: int
    shares: int
    warps: int
    across: int
    stages: int


# By the most rows: the fastest of those tried on an H100, at the widths of an 8B model's layers; of more than 32 rows
# few were. `WIDE` are those of layers of so many outputs that programs need not be small to be many.
TILINGS = {
    8: Tiling(8, 16, 4, 4, 2, 4),
    16: Tiling(16, 32, 4, 4, 2, 3),
    32: Tiling(32, 32, 4, 4, 1, 3),
    FUSED_ROWS: Tiling(64, 64, 1, 4, 1, 3),
}
WIDE = {8: Tiling(8, 32, 2, 2, 2, 4), 16: Tiling(16, 64, 1, 4, 2, 4), 32: Tiling(32, 64, 1, 4, 2, 3)}
WIDE_OUTPUTS = 16_384
# Tiles of a share that are fetched before x is there: as many as a pipeline of few rows holds, and twice that of layers
# of few outputs, as attention's, before which the GPU reads little else.
AHEAD, NARROW_AHEAD = 8, 16
NARROW_OUTPUTS = 4096
UNPACK_DOWN = 8


def tiling(rows: int, outputs: int, group: int) -> Tiling:
    """The tiling of a launch; inputs at a time are of one group, where it is a multiple of a tile's."""
    most = next(most for most in TILINGS if rows <= most)
    chosen = WIDE.get(most, TILINGS[most]) if outputs >= WIDE_OUTPUTS else TILINGS[most]
    return chosen if group % (INPUTS * chosen.across) == 0 else replace(chosen, across=1)


def awq_matmul(
    x: Tensor,
    tiles: Tensor,
    scales: Tensor,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    cut: Tiling | None = None,
    gate: Activation | None = None,
) -> Tensor:
    """x [..., inputs] times the packed weights, plus the bias, in x's dtype, float16 or bfloat16; sums are float32.
    With `gate` act(first half of the outputs) * second half, where `can_gate`.

    `tiles` and `scales` are those of `awq_tiles.tiled`, or of several layers one below the other, or a part of these;
    the group is a multiple of 16. `out` [..., outputs], contiguous, is written and returned where it is given; `cut`
    takes the place of the usual tiling. Gives the same bits each time, and never waits for the device, so it can be
    captured in a CUDA graph.
    """
    groups, outputs = scales.shape
    width = gated_width(outputs, gate)
    out = torch.empty(*x.shape[:-1], width, dtype=x.dtype, device=x.device) if out is None else out
    target, x = out.view(-1, width), x.reshape(-1, x.shape[-1])
    x = x if x.stride(-1) == 1 else x.contiguous()
    rows, inputs = x.shape
    if not rows:
        return out
    if rows > FUSED_ROWS:
        assert gate is None, "as it is, such a product is no kernel's of ours"
        weight = awq_unpack(tiles, scales, inputs, x.dtype).t()
        torch.mm(x, weight, out=target) if bias is None else torch.addmm(bias, x, weight, out=target)
        return out
    group = inputs // groups
    cut = cut or tiling(rows, outputs, group)
    if gate is not None:  # tiles of gates, and as many of what they gate
        cut = replace(cut, block_n=max(cut.block_n, 2 * OUTPUTS))
    share = -(-tiles.shape[1] // (cut.shares * cut.across)) * cut.across
    grid = -(-outputs // cut.block_n), -(-rows // cut.block_m)
    sizes = rows, inputs, outputs, x.stride(0), scales.stride(0), share
    ahead = NARROW_AHEAD if outputs <= NARROW_OUTPUTS else AHEAD
    cuts = group, cut.shares, cut.block_m, cut.block_n, cut.across, cut.stages, ahead, gate and gate.value
    values = target, x, tiles, scales, bias, *sizes, *cuts
    launch(awq_matmul_kernel, grid, values, num_warps=cut.warps, num_stages=cut.stages)
    return out


def can_gate(rows: int, outputs: int) -> bool:
    """Whether a product of so many rows can end with its gate: its halves are whole tiles."""
    return rows <= FUSED_ROWS and outputs % (2 * OUTPUTS) == 0


def awq_unpack(tiles: Tensor, scales: Tensor, inputs: int, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
    """The weights [outputs, inputs], rounded once to `dtype`: those of `awq_layout.dequantize`, bit for bit."""
    groups, outputs = scales.shape
    out = torch.empty(outputs, inputs, dtype=dtype, device=tiles.device) if out is None else out
    grid = -(-outputs // (UNPACK_DOWN * OUTPUTS)), tiles.shape[1]
    sizes = inputs, outputs, scales.stride(0), inputs // groups, UNPACK_DOWN
    launch(awq_unpack_kernel, grid, (out, tiles, scales, *sizes), num_warps=4)
    return out
