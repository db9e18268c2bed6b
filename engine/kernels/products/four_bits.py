"""A Triton kernel for linear layers whose weights bitsandbytes packed to 4 bits, for few rows of x.

A byte holds the codes of inputs 2i, in its upper half, and 2i + 1, in its lower one; a block of weights in a row shares
a float32 scale. A program computes some outputs, and the blocks of their inputs are dealt out to its warps: each
multiplies its own with x, and in the end the warps' sums are added up, in a fixed order. So the GPU is full where
outputs are few, no weight is decoded twice, and no program waits for another.

The weights are the tensor cores' first operand, of 16 rows a tile, so that x may have as few as eight. A lane reads 16
neighbouring inputs of a row's 64, whereas tensor cores have a lane multiply two pairs of each 16: so the inputs of a
block are multiplied in another order, the same of weights and x (`in_lanes`), in which a lane decodes what it
multiplies, and nothing is exchanged. A code's float is looked up in registers; the scale is applied to a block's sum,
in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from engine.kernels.dependent_launch import await_inputs, fetch_ahead, interpreted
from engine.kernels.jit import constant, jit, launch, tl
from engine.kernels.products.awq_matmul import BFLOATS, HALVES, half, negative
from engine.kernels.products.gating import gated_width, outputs_of, store_product
from engine.kernels.silu_mul import Activation

CODES = 16
BLOCK_K = 64  # inputs that are multiplied before a scale is applied: blocks of weights are multiples of it
# Of more rows bitsandbytes makes floats of all weights for cuBLAS, as it does of all but one. On an H100 it took 1.3 to
# 1.5 of our time at one row, 3.8 to 5.6 at 8 and 2.3 to 3.1 at 32.
FEW_ROWS = 64
ASSEMBLED = constant(not interpreted)
LANES = constant(4)  # of a warp, that share a row of weights


def assembly(upper_first: bool) -> str:
    """PTX that makes of a word's eight codes, $4, their floats, two in each of $0 to $3, in the order of the inputs.
    $5 to $12 are the table, as `table_of` has it. `upper_first`: of a byte's two the upper one is the first input's.

    `prmt` looks a byte up among eight by three bits of its selector, four at a time: of the low eight codes and of the
    high eight, either byte of their floats. Where a selector's fourth bit is set it spreads a byte's sign: so a code's
    own fourth bit becomes a mask, by which the two are chosen between.
    """
    orders = (0x4051, 0x6273) if upper_first else (0x5140, 0x7362)
    code = ["and.b32 first, $4, 0x77777777", "shr.b32 second, first, 16", "shl.b32 moved, $4, 4"]
    for selector, signs, pairs in (("first", 0xD9C8, (0, 1)), ("second", 0xFBEA, (2, 3))):
        code.append(f"prmt.b32 mask, moved, $4, {signs:#x}")
        for found, at in (("small", 5), ("large", 9)):  # bytes of a float
            code.append(f"prmt.b32 few, ${at}, ${at + 1}, {selector}")
            code.append(f"prmt.b32 many, ${at + 2}, ${at + 3}, {selector}")
            code.append(f"lop3.b32 {found}, mask, many, few, 0xCA")  # mask ? many : few
        code += [f"prmt.b32 ${pair}, small, large, {order:#x}" for pair, order in zip(pairs, orders)]
    return f"{{ .reg .b32 {', '.join(NAMES)}; " + "".join(f"{line}; " for line in code) + "}"


def steps_assembly(power: int, one: int, kind: str) -> str:
    """PTX that makes of a word's eight codes, $4, a byte's lower one first, two numbers of `kind` in each of $0 to $3,
    in the order of the inputs: a code with the bits of `power` above it, plus what $5 holds, in twos as they do."""
    code = [f"mov.b32 one, {one:#x}"]
    for place in range(4):  # the codes of this place and of four places on
        code.append(f"shr.b32 both{place}, $4, {4 * place}")
        code.append(f"lop3.b32 both{place}, both{place}, 0x000F000F, {power:#x}, 0xEA")  # moved & mask | power
        code.append(f"fma.rn.{kind} both{place}, both{place}, one, $5")
    for pair, (first, halves) in enumerate(((0, 0x5410), (2, 0x5410), (0, 0x7632), (2, 0x7632))):
        code.append(f"prmt.b32 ${pair}, both{first}, both{first + 1}, {halves:#x}")
    return "{ .reg .b32 one, both0, both1, both2, both3; " + "".join(f"{line}; " for line in code) + "}"


HALF_STEPS = constant(steps_assembly(HALVES, 0x3C003C00, "f16x2"))
BFLOAT_STEPS = constant(steps_assembly(BFLOATS, 0x3F803F80, "bf16x2"))
STEP_REGISTERS = constant("=&r,=&r,=&r,=&r,r,r")
NAMES = "first", "second", "moved", "mask", "few", "many", "small", "large"
UPPER_FIRST, LOWER_FIRST = constant(assembly(upper_first=True)), constant(assembly(upper_first=False))
REGISTERS = constant("=&r,=&r,=&r,=&r" + 9 * ",r")


@jit
def held_table(table):  # type: ignore[no-untyped-def]
    """What `decoded` looks up: the table's words in registers, each lane's from a copy of its own. Of one that all
    share, ptxas would fetch each word from a uniform register every time; and of none that is loaded as a tensor is,
    Triton would exchange the weights."""
    if ASSEMBLED:
        table += (8 * tl.arange(0, LANES))[None, None, :, None]
        small = tl.load(table), tl.load(table + 1), tl.load(table + 2), tl.load(table + 3)
        held = small, (tl.load(table + 4), tl.load(table + 5), tl.load(table + 6), tl.load(table + 7))
    else:
        held = table
    return held


@jit
def codes_of(words, UPPER: tl.constexpr):  # type: ignore[no-untyped-def]
    """[blocks, rows, lanes, n, 8] of words [blocks, rows, lanes, n], in the order of the inputs."""
    return (words[:, :, :, :, None] >> (tl.arange(0, 8) ^ (1 if UPPER else 0)) * 4) & 15


@jit
def decoded(packed, table, DTYPE: tl.constexpr, UPPER: tl.constexpr):  # type: ignore[no-untyped-def]
    """Floats [blocks, rows, 8 * n] of codes in words [blocks, rows, n]; UPPER: a byte's upper one is the first."""
    words = packed.reshape(packed.shape[0], packed.shape[1], LANES, packed.shape[2] // LANES)
    if DTYPE.is_fp32():  # few models: a float is read for each code
        floats = tl.load(table + codes_of(words, UPPER))
    elif ASSEMBLED:
        small, large = table
        given = [words, small[0], small[1], small[2], small[3], large[0], large[1], large[2], large[3]]
        CODE: tl.constexpr = UPPER_FIRST if UPPER else LOWER_FIRST
        a, b, c, d = tl.inline_asm_elementwise(CODE, REGISTERS, given, (tl.int32,) * 4, is_pure=True, pack=1)
        pairs = tl.join(tl.join(a, c), tl.join(b, d))
        floats = tl.join(half(pairs, 0, DTYPE), half(pairs, 1, DTYPE))
    else:
        codes = codes_of(words, UPPER)
        small, large = tl.load(table + codes // 4), tl.load(table + codes // 4 + 4)
        floats = half((small >> codes % 4 * 8) & 255 | ((large >> codes % 4 * 8) & 255) << 8, 0, DTYPE)
    return floats.reshape(packed.shape[0], packed.shape[1], 8 * packed.shape[2])


@jit
def steps_of(packed, scales, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Floats [blocks, rows, 8 * n] of codes in words [blocks, rows, n], a byte's lower one first, less the zeros that
    are the upper halves of `scales` int32 [blocks, rows, 1]; exact."""
    words = packed.reshape(packed.shape[0], packed.shape[1], LANES, packed.shape[2] // LANES)
    zeros = tl.broadcast_to(scales.reshape(packed.shape[0], packed.shape[1], 1, 1), words.shape)
    if DTYPE.is_fp32() or not ASSEMBLED:
        codes = codes_of(words, False) - (zeros >> 16)[:, :, :, :, None]
        floats = codes.to(DTYPE)
    else:
        CODE: tl.constexpr = BFLOAT_STEPS if DTYPE.is_bf16() else HALF_STEPS
        given = [words, negative(zeros, DTYPE)]
        a, b, c, d = tl.inline_asm_elementwise(CODE, STEP_REGISTERS, given, (tl.int32,) * 4, is_pure=True, pack=1)
        pairs = tl.join(tl.join(a, c), tl.join(b, d))
        floats = tl.join(half(pairs, 0, DTYPE), half(pairs, 1, DTYPE))
    return floats.reshape(packed.shape[0], packed.shape[1], 8 * packed.shape[2])


@jit
def by_block(tile, AT_ONCE: tl.constexpr):  # type: ignore[no-untyped-def]
    """[warps, rows, AT_ONCE * n] as [AT_ONCE * warps, rows, n], whose every warps-th entry is of the same warp."""
    split = tile.reshape(tile.shape[0], tile.shape[1], AT_ONCE, tile.shape[2] // AT_ONCE).permute(2, 0, 1, 3)
    return split.reshape(AT_ONCE * tile.shape[0], tile.shape[1], tile.shape[2] // AT_ONCE)


@jit
def in_lanes(tile):  # type: ignore[no-untyped-def]
    """[blocks, rows, 64] with its inputs, [lane 4, word 2, pairs 2, pair 2, 2] of them, as [word, pair, lane, pairs,
    2]: of each 16 that are multiplied at once, each lane has two of its own pairs twice. Of 32 inputs a lane has one
    word."""
    WORDS: tl.constexpr = tile.shape[2] // (8 * LANES)
    split = tile.reshape(tile.shape[0], tile.shape[1], LANES, WORDS, 2, 2, 2).permute(0, 1, 3, 5, 2, 4, 6)
    return split.reshape(tile.shape[0], tile.shape[1], tile.shape[2])


@jit
def four_bit_product(  # type: ignore[no-untyped-def]
    x,  # pointers [1, BLOCK_M, 1], to rows
    filled,  # [1, BLOCK_M, 1], whether they are there
    packed,
    line,  # int64 [1, BLOCK_N, 1]: the first of an output's blocks
    scales,
    fine,  # None: scales are float32, or uint8, exponents of two and 127; else uint8, codes of what these are
    coarse,  # then of each 256 scales what they are times, and what is added
    first,  # then [1, BLOCK_N, 1]: which of all scales an output's first is
    table,  # None: codes are steps from a zero, and a word of scales is one, as float16, below its zero
    blocks,  # of BLOCK_K inputs
    DTYPE: tl.constexpr,
    UPPER: tl.constexpr,
    SHARED: tl.constexpr,  # blocks that share a scale
    EVEN: tl.constexpr,  # whether the blocks that are read at once divide those of the inputs
    BLOCK_K: tl.constexpr,
    AT_ONCE: tl.constexpr,  # blocks that a share reads at once
    SHARES: tl.constexpr,  # of the inputs: one a warp, or one
    STAGES: tl.constexpr,  # the loop is told of them outright, so that scales are read ahead too
):
    """What BLOCK_N outputs make of BLOCK_M rows, float32 [BLOCK_N, BLOCK_M]."""
    WORDS: tl.constexpr = BLOCK_K // 8
    if DTYPE.is_fp32() or table is None:
        held = table
    else:
        held = held_table(table)
    begin = (tl.arange(0, SHARES) * AT_ONCE)[:, None, None]
    block = begin + tl.arange(0, AT_ONCE)[None, None, :]
    word = begin * WORDS + tl.arange(0, AT_ONCE * WORDS)[None, None, :]
    k = begin * BLOCK_K + tl.arange(0, AT_ONCE * BLOCK_K)[None, None, :]
    x_rows, lines = x + k, packed + line * WORDS + word
    total = tl.zeros([AT_ONCE * SHARES, line.shape[1], x.shape[1]], tl.float32)
    for start in tl.range(0, blocks, SHARES * AT_ONCE, num_stages=STAGES):
        left = blocks - start
        columns = tl.load(x_rows + start * BLOCK_K, mask=filled & ((k < left * BLOCK_K) | EVEN), other=0.0)
        codes = tl.load(lines + start * WORDS, mask=(word < left * WORDS) | EVEN, other=0)
        there = (block < left) | EVEN
        scale = tl.load(scales + (line + start + block) // SHARED, mask=there, other=0)
        if fine is not None:
            shared = coarse + (first + start + block) // 256 * 2
            scale = tl.load(fine + scale.to(tl.int32)) * tl.load(shared, mask=there, other=0.0)
            scale += tl.load(shared + 1, mask=there, other=0.0)
        elif scale.dtype == tl.uint8:
            bits = scale.to(tl.int32)
            scale = tl.where(bits == 0, 0x00400000, bits << 23).to(tl.float32, bitcast=True)
        scale = by_block(scale, AT_ONCE)
        if table is None:
            weights = in_lanes(steps_of(by_block(codes, AT_ONCE), scale, DTYPE))
            scale = half(scale, 0, tl.float16).to(tl.float32)
        else:
            weights = in_lanes(decoded(by_block(codes, AT_ONCE), held, DTYPE, UPPER))
        given = in_lanes(by_block(columns, AT_ONCE)).permute(0, 2, 1)
        if AT_ONCE * SHARES == 1:  # all warps have the same inputs
            product = tl.dot(
                weights.reshape(line.shape[1], BLOCK_K), given.reshape(BLOCK_K, x.shape[1]), input_precision="ieee"
            )
            total += product.reshape(1, line.shape[1], x.shape[1]) * scale
        else:
            total += tl.dot(weights, given, input_precision="ieee") * scale
    return tl.sum(total, axis=0)


@jit(do_not_specialize=["rows", "row_tiles"])
def four_bit_matmul_kernel(
    out: tl.tensor,  # [rows, outputs]
    x: tl.tensor,
    packed: tl.tensor,  # int32 [outputs, inputs / 8]
    scales: tl.tensor,
    table: tl.tensor,
    bias: tl.tensor,
    rows: tl.tensor,
    outputs: tl.tensor,
    blocks: tl.tensor,  # of BLOCK_K inputs
    x_stride: tl.tensor,
    row_tiles: tl.tensor,
    SHARED: tl.constexpr,  # blocks that share a scale
    EVEN: tl.constexpr,  # whether the blocks that warps read at once divide those of the inputs
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    AT_ONCE: tl.constexpr,  # blocks that a warp reads at once
    WARPS: tl.constexpr,
    STAGES: tl.constexpr,
    AHEAD: tl.constexpr,  # words of each output that are fetched before x is there
    GATE: tl.constexpr,  # the activation of the first half of the outputs, or None
) -> None:
    WORDS: tl.constexpr = BLOCK_K // 8
    tile = tl.program_id(0)
    n, within = outputs_of(tile // row_tiles, outputs, BLOCK_N, GATE)
    line = tl.minimum(n, outputs - 1).to(tl.int64)[None, :, None] * blocks
    fetched = tl.minimum(tl.arange(0, AHEAD // 32) * 32, blocks * WORDS - 1)
    fetch_ahead(packed + line * WORDS + fetched[None, None, :])
    fetch_ahead(scales + line // SHARED)
    await_inputs()
    m = tile % row_tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    filled = (m < rows)[None, :, None]
    x_rows = x + m.to(tl.int64)[None, :, None] * x_stride
    product = four_bit_product(
        x_rows, filled, packed, line, scales, None, None, None, table, blocks,
        x.dtype.element_ty, True, SHARED, EVEN, BLOCK_K, AT_ONCE, WARPS, STAGES,
    )  # fmt: skip
    if bias is not None:
        product += tl.load(bias + n, mask=within, other=0.0).to(tl.float32)[:, None]
    store_product(out, product, tile // row_tiles, m, rows, outputs, GATE)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a launch is cut: rows and outputs a tile, blocks of inputs that a warp reads at once, warps a program,
    pipeline stages."""

    block_m: int
    block_n: int
    at_once: int
    num_warps: int
    num_stages: int


# By the most rows: the fastest of those tried on an H100, at the widths of an 8B model's layers. Of few rows and fewer
# outputs than `WIDE`, programs have half as many.
TILINGS = {8: Tiling(8, 32, 2, 4, 3), 16: Tiling(16, 32, 1, 4, 3), FEW_ROWS: Tiling(32, 32, 1, 4, 3)}
NARROW = Tiling(8, 16, 2, 4, 4)
WIDE = 16_384
AHEAD = 256  # words of an output that are fetched before x is there: as many as a pipeline of few rows holds


@cache
def table_of(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """What the 16 codes mean, their numbers rounded to float16 or bfloat16: int32 [4, 8], as often as `held_table`
    wants it, the lower bytes of all floats before the upper ones."""
    floats = torch.tensor(numbers, dtype=torch.float32).to(dtype)
    planes = floats.view(torch.uint8).view(CODES, 2).t().contiguous().view(torch.int32)
    return planes.flatten().repeat(4, 1).to(device)


def tiling(rows: int, outputs: int) -> Tiling:
    """The tiling of a launch."""
    if rows <= NARROW.block_m and outputs < WIDE:
        return NARROW
    return next(TILINGS[most] for most in TILINGS if rows <= most)


def four_bit_matmul(
    x: Tensor,
    packed: Tensor,
    scales: Tensor,
    table: Tensor,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    tiles: Tiling | None = None,
    gate: Activation | None = None,
) -> Tensor:
    """x [..., inputs] times the packed weights [outputs, inputs], plus the bias, in x's dtype, float16 or bfloat16;
    sums are float32. At most `FEW_ROWS` rows. With `gate` act(first half of the outputs) * second half.

    `packed` uint8 holds two weights a byte, row by row, and `scales` float32 one for each block of them; both are
    contiguous. A block is a multiple of 64, as `inputs` are. `table` is of x's dtype. `out` [..., outputs], contiguous,
    is written and returned where it is given; `tiles` takes the place of the usual tiling, for measurements and tests.
    Gives the same bits each time, and never waits for the device, so it can be captured in a CUDA graph.
    """
    outputs = 2 * packed.numel() // x.shape[-1]
    width = gated_width(outputs, gate)
    out = torch.empty(*x.shape[:-1], width, dtype=x.dtype, device=x.device) if out is None else out
    x = x.reshape(-1, x.shape[-1])
    rows, inputs = x.shape
    if not rows:
        return out
    stride = x.stride(0) if rows > 1 else inputs
    if x.stride(1) != 1 or stride % 16 or x.storage_offset() % 8:  # else 16 bytes are read at once
        x, stride = x.clone(memory_format=torch.contiguous_format), inputs
    blocks, tiles = inputs // BLOCK_K, tiles or tiling(rows, outputs)
    row_tiles = -(-rows // tiles.block_m)
    even = blocks % (tiles.at_once * tiles.num_warps) == 0
    shared = inputs * outputs // scales.numel() // BLOCK_K
    tensors = out, x, packed.flatten().view(torch.int32), scales, table, bias
    sizes = rows, outputs, blocks, stride, row_tiles
    cut = tiles.block_m, tiles.block_n, BLOCK_K, tiles.at_once, tiles.num_warps, tiles.num_stages, AHEAD
    grid, warps, stages = (row_tiles * -(-outputs // tiles.block_n),), tiles.num_warps, tiles.num_stages
    values = *tensors, *sizes, shared, even, *cut, gate and gate.value
    launch(four_bit_matmul_kernel, grid, values, num_warps=warps, num_stages=stages)
    return out
