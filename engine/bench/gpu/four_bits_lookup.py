"""Another decoder of 4-bit weights, for `engine.kernels.products.four_bits` to multiply with: a candidate that no
model uses.

What is shipped makes floats of four bytes in registers, out of constants. This one looks each byte's two floats up in
shared memory, where each lane of a warp has a table of its own, so that none waits for another's bank. By the machine
code for sm_90 that is 866 instructions a pass instead of 1024; but the tables take 32 KB, so that a multiprocessor
holds two programs instead of three, and lookups queue up behind the loads of what is multiplied. Which of that weighs
more is not to be counted, and no card has run either: the section `nf4` times both.

If this one wins: move it to `engine.kernels.products.four_bits` in the place of `assembly`, whose interpreted form then
reads the pairs, and let `engine.kernels.compiled.usage` count shared memory that Triton does not lay out. If it does
not: delete it, with `Table.fill` and the kernel's FILL.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch

from engine.kernels.products.four_bits import BLOCK_K, CODES, Table, Tiling

BYTES = 256  # that a byte may be
TABLE_BYTES = 4 * BYTES * 32  # of shared memory, besides what Triton lays out there
# Bytes of it that a program is launched with untold. Triton asks for more only where what it lays out itself is more,
# so that must be, tables or no.
UNTOLD = 48 << 10
PROGRAMS = 2  # side by side, which is what shared memory of 228 KB has room for


@cache
def lookup_table(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device, num_warps: int) -> Table:
    """The numbers of the 16 codes, for programs of so many warps. Its `floats` are int32 [256], what each byte means:
    the upper code's float, rounded to float16 or bfloat16, in the lower 16 bits, and the lower one's in the upper."""
    floats = torch.tensor(numbers, dtype=torch.float32).to(dtype)
    pairs = torch.stack([floats.repeat_interleave(CODES), floats.repeat(CODES)], -1)
    return Table(pairs.view(torch.int32).flatten().to(device), looking_up(), filling(num_warps))


def filling(num_warps: int) -> str:
    """PTX that fills every lane's table, `looked_up`, from the one in memory at $1. Each warp has its share of entries,
    and reads them all before it stores the first; $0 means nothing."""
    count = BYTES // num_warps
    code = ["mov.u32 lane, %tid.x", "shr.u32 warp, lane, 5", "and.b32 lane, lane, 31", "mov.u32 place, looked_up"]
    code += ["mad.lo.u32 place, lane, 4, place", f"mad.lo.u32 place, warp, {128 * count}, place"]
    code += [f"mul.wide.u32 source, warp, {4 * count}", "add.u64 source, source, $1"]
    for i in range(0, count, 4):
        code.append(f"ld.global.v4.b32 {{e{i}, e{i + 1}, e{i + 2}, e{i + 3}}}, [source + {4 * i}]")
    code += [f"st.shared.b32 [place + {128 * i}], e{i}" for i in range(count)]
    code += ["bar.sync 0", "mov.u32 $0, 0"]
    held = ", ".join(("lane", "warp", "place", *(f"e{i}" for i in range(count))))
    # Not within the braces, so that what looks up, further down, knows it too.
    table = f".shared .align 128 .b32 looked_up[{32 * BYTES}]; "
    return f"{table}{{ .reg .b32 {held}; .reg .b64 source; " + "".join(f"{line}; " for line in code) + "}"


def looking_up() -> str:
    """PTX that makes of four bytes, $4, the floats of their upper codes, two in $0 and $1 each, and of their lower
    ones, in $2 and $3."""
    code = ["mov.u32 lane, %laneid", "mov.u32 begin, looked_up", "mad.lo.u32 begin, lane, 4, begin"]
    for i in range(4):
        code.append(f"prmt.b32 at, $4, 0, {0x4440 + i:#x}")
        code.append("mad.lo.u32 at, at, 128, begin")
        code.append(f"ld.shared.b32 e{i}, [at]")
    for i in range(2):
        code.append(f"prmt.b32 ${i}, e{2 * i}, e{2 * i + 1}, 0x5410")
        code.append(f"prmt.b32 ${i + 2}, e{2 * i}, e{2 * i + 1}, 0x7632")
    return "{ .reg .b32 lane, begin, at, e0, e1, e2, e3; " + "".join(f"{line}; " for line in code) + "}"


def stage_bytes(tiles: Tiling) -> int:
    """Of shared memory, for a stage of the pipeline; one stage is in registers."""
    return tiles.at_once * (BLOCK_K * (tiles.block_n // 2 + 2 * tiles.block_m) + 4 * tiles.block_n)


def beside_tables(tiles: Tiling) -> Tiling:
    """The same with as many stages as Triton must lay out for the tables to be launched too."""
    stages = max(tiles.num_stages, UNTOLD // stage_bytes(tiles) + 2)
    return replace(tiles, num_stages=stages, programs=min(tiles.programs, PROGRAMS))
