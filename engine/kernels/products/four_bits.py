"""A Triton kernel for linear layers whose weights bitsandbytes packed to 4 bits, for few rows of x.

A byte holds the codes of inputs 2i, in its upper half, and 2i + 1, in its lower one; a block of weights in a row shares
a float32 scale. Of a tile [outputs, bytes] the upper codes are multiplied with x's even inputs and the lower ones with
its odd ones, so that a thread decodes what it multiplies and nothing is exchanged. A code's float is looked up in
registers; the scale is applied to a block's sum, in float32.

Inputs are split where the outputs fill too few programs for the GPU (`split_inputs`), and whichever program is done
last adds the sums up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from engine.kernels.attention.splits import arrives_last
from engine.kernels.attention.tilings import device_facts
from engine.kernels.dependent_launch import await_inputs, interpreted
from engine.kernels.jit import constant, jit, launch, tl
from engine.kernels.products.awq_matmul import half
from engine.kernels.products.split_inputs import add_parts, arrivals, parts, store_product

CODES = 16
BLOCK_K = 64  # inputs that are multiplied before a scale is applied: blocks of weights are multiples of it
# One row is bitsandbytes' own: its kernel for that was measured, on an H200 at four times the time of the packed bytes,
# and ours was not yet. Of more it makes floats of all weights for cuBLAS, which reads and writes nine times these bytes
# (a step of eight rows took three times as long as of one); up to 64, tiles of ours should be done sooner.
THREE = 80, 90, 100, 103  # architectures whose multiprocessors have shared memory for three programs of few rows
LEAST_ROWS, FEW_ROWS = 2, 64
ASSEMBLED = constant(not interpreted)
REGISTERS = constant("=&r,=&r,=&r,=&r,r")


def assembly(numbers: Sequence[int]) -> str:
    """PTX that makes of four bytes, $4, the floats of their upper codes, two in $0 and $1 each, and of their lower
    ones, in $2 and $3. `numbers` are the 16 codes' floats, 16 bits each.

    `prmt` looks a byte up among eight by three bits of its selector, four at a time: of the low eight codes and of the
    high eight, either byte of their floats. Where a selector's fourth bit is set it spreads a byte's sign: so a code's
    own fourth bit becomes a mask, by which the two are chosen between. The tables are made by an operation with a
    register that is zero in a grid of two dimensions, or constants would be moved to registers before every use.
    """
    code = ["mov.u32 zero, %ctaid.z", "and.b32 first, $4, 0x77777777", "shr.b32 second, first, 16"]
    code.append("shl.b32 moved, $4, 4")
    for selector, signs, lower, upper in (("first", 0xD9C8, "$2", "$0"), ("second", 0xFBEA, "$3", "$1")):
        code.append(f"prmt.b32 mask, moved, $4, {signs:#x}")
        for byte, found in enumerate(("small", "large")):  # of a float
            for begin, to in ((0, "few"), (8, "many")):
                held = [number >> 8 * byte & 0xFF for number in numbers[begin : begin + 8]]
                four, others = (int.from_bytes(bytes(held[at : at + 4]), "little") for at in (0, 4))
                code.append(f"xor.b32 table, zero, {four:#x}")
                code.append(f"xor.b32 rest, zero, {others:#x}")
                code.append(f"prmt.b32 {to}, table, rest, {selector}")
            code.append(f"lop3.b32 {found}, mask, many, few, 0xCA")  # mask ? many : few
        code.append(f"prmt.b32 {lower}, small, large, 0x6240")
        code.append(f"prmt.b32 {upper}, small, large, 0x7351")
    return f"{{ .reg .b32 {', '.join(NAMES)}; " + "".join(f"{line}; " for line in code) + "}"


NAMES = "zero", "first", "second", "moved", "mask", "few", "many", "small", "large", "table", "rest"


@jit
def decoded(packed, table, DECODE: tl.constexpr, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The floats of each byte's upper code, and of its lower one."""
    if ASSEMBLED:
        if DTYPE.is_fp16():
            floats = tl.inline_asm_elementwise(DECODE, REGISTERS, [packed], (tl.float16,) * 2, is_pure=True, pack=4)
        else:
            floats = tl.inline_asm_elementwise(DECODE, REGISTERS, [packed], (tl.bfloat16,) * 2, is_pure=True, pack=4)
    else:
        codes = packed.to(tl.int32)
        floats = tl.load(table + (codes >> 4)), tl.load(table + (codes & 15))
    return floats


@jit(do_not_specialize=["rows", "blocks", "part_blocks", "parts", "row_tiles"])
def four_bit_matmul_kernel(
    out: tl.tensor,  # [rows, outputs]
    sums: tl.tensor,  # float32 [parts, rows, outputs]; None of one part
    arrived: tl.tensor,  # int32, zero before and after: how many of a tile's parts are stored; None of one part
    x: tl.tensor,  # int32, of two inputs each
    packed: tl.tensor,  # uint8 [outputs, inputs / 2]
    scales: tl.tensor,
    table: tl.tensor,  # the codes' floats, for the interpreter; and for FILL what that reads
    bias: tl.tensor,
    rows: tl.tensor,
    outputs: tl.tensor,
    blocks: tl.tensor,  # of BLOCK_K inputs
    x_stride: tl.tensor,  # in int32
    part_blocks: tl.tensor,  # blocks of a program, a multiple of AT_ONCE
    parts: tl.tensor,
    row_tiles: tl.tensor,
    SHARED: tl.constexpr,  # blocks that share a scale
    DECODE: tl.constexpr,  # as `assembly` makes it
    FILL: tl.constexpr,  # what is done once, before anything is decoded; "" for nothing
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WORDS: tl.constexpr,  # of x in a block, and bytes of an output: BLOCK_K / 2
    AT_ONCE: tl.constexpr,  # blocks that are read at once: of four, whole cache lines
    STAGES: tl.constexpr,  # the loop is told of them outright, so that scales are read ahead too
) -> None:
    await_inputs()
    if FILL != "":
        tl.inline_asm_elementwise(FILL, "=r,l", [table.to(tl.int64)], tl.int32, is_pure=False, pack=1)
    DTYPE: tl.constexpr = out.dtype.element_ty
    tile, part = tl.program_id(0), tl.program_id(1)
    first_m = tile % row_tiles * BLOCK_M
    m = first_m + tl.arange(0, BLOCK_M)
    n = tile // row_tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    filled, within = m < rows, n < outputs
    word = tl.arange(0, WORDS)
    first = part * part_blocks
    last = tl.minimum(first + part_blocks, blocks)
    x_rows = x + m.to(tl.int64)[:, None] * x_stride + word[None, :]
    lines = packed + n.to(tl.int64)[:, None] * (blocks * WORDS) + word[None, :]
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in tl.range(first, last, AT_ONCE, num_stages=STAGES):
        for i in tl.static_range(AT_ONCE):
            at = start + i
            words = tl.load(x_rows + at * WORDS, mask=filled[:, None], other=0)
            codes = tl.load(lines + at * WORDS, mask=within[:, None], other=0)
            scale = tl.load(scales + (n * blocks + at) // SHARED, mask=within, other=0.0)
            upper, lower = decoded(codes, table, DECODE, DTYPE)
            product = tl.dot(half(words, 0, DTYPE), upper.trans(), input_precision="ieee")
            product = tl.dot(half(words, 1, DTYPE), lower.trans(), product, input_precision="ieee")
            total += product * scale[None, :]
    store_product(out, sums, total, bias, (m, n, filled, within), rows, outputs, part)
    if sums is not None:
        last_here = arrives_last(arrived + tile, parts)
        if last_here:
            begin, count = first_m.to(tl.int64) * outputs, tl.minimum(rows - first_m, BLOCK_M)
            size = rows.to(tl.int64) * outputs
            add_parts(out + begin, sums + begin, bias, count, size, outputs, parts, n, within)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How one launch is cut: rows and outputs a tile, blocks of inputs at a time, warps a program, pipeline stages;
    and how many programs a multiprocessor is to hold side by side."""

    block_m: int
    block_n: int
    at_once: int
    num_warps: int
    num_stages: int
    programs: int


# By the most rows.
TILINGS = {16: Tiling(16, 128, 4, 4, 3, 3), FEW_ROWS: Tiling(32, 128, 4, 4, 3, 2)}


@dataclass(frozen=True, slots=True)
class Table:
    """What 16 codes mean: their floats on a device, and the PTX that looks them up.

    `fill` is for decoders that prepare something first, as `engine.bench.gpu.four_bits_lookup` does: PTX that each
    thread of a program runs once, with the address of `floats` in $1; what it leaves in $0 means nothing.
    """

    floats: Tensor
    code: str
    fill: str = ""


@cache
def table_of(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Table:
    """The numbers of the 16 codes, rounded to float16 or bfloat16."""
    floats = torch.tensor(numbers, dtype=torch.float32).to(dtype)
    return Table(floats.to(device), assembly([each & 0xFFFF for each in floats.view(torch.int16).tolist()]))


def tiling(rows: int, blocks: int, sm: int) -> Tiling:
    """The tiling of a launch; blocks at a time divide `blocks`, and are half as many where shared memory is small."""
    chosen = next(TILINGS[most] for most in TILINGS if rows <= most)
    at_once = chosen.at_once if sm in THREE else chosen.at_once // 2
    return replace(chosen, at_once=min(at_once, blocks & -blocks))


def four_bit_matmul(
    x: Tensor,
    packed: Tensor,
    scales: Tensor,
    table: Table,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    processors: int | None = None,
    sm: int | None = None,
    tiles: Tiling | None = None,
) -> Tensor:
    """x [..., inputs] times the packed weights [outputs, inputs], plus the bias, in x's dtype, float16 or bfloat16;
    sums are float32. At most `FEW_ROWS` rows.

    `packed` uint8 holds two weights a byte, row by row, and `scales` float32 one for each block of them; both are
    contiguous. A block is a multiple of 64, as `inputs` are. `table` is of x's dtype. `out` [..., outputs], contiguous,
    is written and returned where it is given; `processors` and `sm` take the place of what the device has, and `tiles`,
    whose blocks at a time divide those of the inputs, of the usual tiling, for measurements and tests. Gives the same
    bits each time, and never waits for the device, so it can be captured in a CUDA graph. Calls on a device are for one
    stream, or for streams that wait for one another.
    """
    outputs = 2 * packed.numel() // x.shape[-1]
    out = torch.empty(*x.shape[:-1], outputs, dtype=x.dtype, device=x.device) if out is None else out
    target, x = out.view(-1, outputs), x.reshape(-1, x.shape[-1])
    rows, inputs = x.shape
    if not rows:
        return out
    in_pairs = x.stride(-1) == 1 and x.stride(0) % 2 == 0 and x.storage_offset() % 2 == 0
    x = (x if in_pairs else x.contiguous()).view(torch.int32)
    blocks, facts = inputs // BLOCK_K, device_facts(x.device)
    tiles = tiles or tiling(rows, blocks, sm or facts[0])
    row_tiles = -(-rows // tiles.block_m)
    programs, steps = row_tiles * -(-outputs // tiles.block_n), blocks // tiles.at_once
    at_a_time = tiles.programs * (processors or facts[1])
    part_blocks = -(-steps // parts(programs, steps, at_a_time)) * tiles.at_once
    split = -(-blocks // part_blocks)
    sums = torch.empty(split, *target.shape, dtype=torch.float32, device=x.device) if split > 1 else None
    arrived = None if sums is None else arrivals(x.device, programs)
    shared = inputs * outputs // scales.numel() // BLOCK_K
    tensors = target, sums, arrived, x, packed, scales, table.floats, bias
    sizes = rows, outputs, blocks, x.stride(0), part_blocks, split, row_tiles
    cut = tiles.block_m, tiles.block_n, BLOCK_K // 2, tiles.at_once, tiles.num_stages
    values = *tensors, *sizes, shared, table.code, table.fill, *cut
    warps, stages = tiles.num_warps, tiles.num_stages
    launch(four_bit_matmul_kernel, (programs, split), values, num_warps=warps, num_stages=stages)
    return out
