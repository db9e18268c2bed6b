"""How attention launches are cut, by GPU architecture: heads of 128 on sm_90 by their times on an H200, the others by
bytes in flight, occupancy and the registers that `python -m engine.kernels.offline.compiled` reads.

`python -m engine.bench.gpu` times `candidates` by `paged_attention(..., tiling=...)`; the fastest belongs in `TABLES`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cache

import torch

from engine.kernels.jit import next_power_of_two

LEAST_M = 16  # of a tensor core's product


class Rows(Enum):
    """What a launch's rows are: short ones read their whole context for a few tokens, and are bound by memory; long
    ones by arithmetic."""

    SHORT = "short"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class Tiling:
    """How one launch is cut.

    `block_m` is query tokens * group, of short rows the most; `block_keys` keys are read at a time by a program of
    `num_warps` warps in `num_stages` pipeline stages. Contexts are split over several programs until there are about
    `programs` a multiprocessor; a thread that adds their parts up reads `merged` values at a time.
    """

    block_m: int
    block_keys: int
    num_warps: int
    num_stages: int
    programs: int
    merged: int = 32


Table = dict[int, Tiling]  # by padded head_dim

# IEEE products of float32 have no tensor cores: small tiles keep them in registers.
FLOAT32: Table = {
    **dict.fromkeys((32, 64, 128), Tiling(16, 32, 4, 2, 4)),
    256: Tiling(16, 16, 4, 2, 4),
    512: Tiling(16, 16, 8, 1, 4),
    1024: Tiling(16, 16, 16, 1, 4),
}
FLOAT32_OF_CODES: Table = {
    **dict.fromkeys((32, 64), Tiling(16, 16, 4, 2, 4)),
    128: Tiling(16, 16, 8, 2, 4),
    256: Tiling(16, 16, 8, 1, 4, 16),
    512: Tiling(16, 16, 8, 1, 4),
    1024: Tiling(16, 16, 16, 1, 4),
}

# Short rows: a program has two tiles of keys and values on their way (64 KB in three stages, head_dim 128), and three
# programs fit a multiprocessor of sm_90 side by side, several times what memory needs to be kept busy (about 20 KB a
# multiprocessor).
_SHORT = {
    32: Tiling(32, 64, 4, 3, 4),
    64: Tiling(32, 64, 4, 2, 4),
    128: Tiling(32, 64, 4, 3, 4),
    256: Tiling(32, 32, 4, 2, 4),
    512: Tiling(16, 16, 8, 2, 4),
    1024: Tiling(16, 16, 8, 2, 4),  # latents: K and V at once
}
# Long rows: as many queries a tile as the registers hold, since each key is fetched once a tile. 64 rows of M a group
# of four warps are wgmma's shape.
_LONG = {
    **dict.fromkeys((32, 64, 128), Tiling(128, 64, 8, 3, 1)),
    256: Tiling(64, 32, 8, 2, 1),
    512: Tiling(32, 16, 8, 2, 1),
    1024: Tiling(16, 16, 8, 2, 1),
}
# Where memory is fast, adding parts up is too much of a short row's time to wait for twice as many reads.
_MERGED = {wide: replace(tiles, merged=64) for wide, tiles in _SHORT.items() if wide < 512}
_MERGED |= {wide: _SHORT[wide] for wide in (512, 1024)}
_AMPERE = {
    Rows.SHORT: _MERGED,
    Rows.LONG: _LONG | {128: Tiling(128, 32, 8, 3, 1)},  # 64 keys spill where a group is no power of two
}
_ADA = {  # 99 KB of shared memory, and less bandwidth to keep busy: smaller tiles, so that two programs fit
    Rows.SHORT: {
        32: _SHORT[32],
        64: Tiling(32, 32, 4, 3, 4, 8),  # more spill
        128: Tiling(32, 32, 4, 3, 4),
        256: Tiling(32, 32, 4, 2, 2),
        512: _SHORT[512],
        1024: _SHORT[1024],
    },
    Rows.LONG: _LONG | {128: Tiling(128, 64, 8, 2, 1)},
}
_WIDE = _MERGED | {64: Tiling(32, 128, 4, 2, 4, 64), 256: Tiling(32, 32, 4, 3, 4)}  # of 256 more spill
# Few rows leave multiprocessors with little to do but wait: two warps agree on a tile's highest score sooner than four.
# On an H200 decoding took 0.83 to 0.96 of the wide tiles' time at 8 to 77 rows, 1.01 to 1.05 from 138 rows on.
_HOPPER = {Rows.SHORT: _WIDE | {128: Tiling(32, 32, 2, 3, 4, 64)}, Rows.LONG: _LONG}
CROWDED: dict[int, Table] = {90: {128: _WIDE[128]}}  # by sm, of more than `MANY` rows and KV heads a multiprocessor
MANY = 6
_BLACKWELL = {
    Rows.SHORT: _WIDE,
    Rows.LONG: _LONG
    | {
        64: Tiling(128, 32, 8, 3, 2),  # 64 keys spill
        # 32 keys spill, as 4 warps do; all tensor memory is taken, so a multiprocessor holds one program.
        256: Tiling(64, 16, 8, 2, 1),
    },
}
TABLES: dict[int, dict[Rows, Table]] = {80: _AMPERE, 89: _ADA, 90: _HOPPER, 100: _BLACKWELL}  # by sm
DEFAULT = _ADA  # fits every GPU since Ampere
FAMILY = {103: 100, 121: 120}  # whose tables an architecture takes that has none
WIDEST = 1024  # head_dim; of float32 half of it fits the memory of every multiprocessor
# Over a cache of codes, which take registers until they are multiplied, where the others spill.
OF_CODES = TABLES | {
    90: _HOPPER | {Rows.SHORT: _WIDE},
    100: _BLACKWELL | {Rows.LONG: _LONG},
    **dict.fromkeys((86, 89, 120), _ADA | {Rows.LONG: _ADA[Rows.LONG] | {128: Tiling(128, 32, 8, 2, 1)}}),
}


@cache
def device_facts(device: torch.device) -> tuple[int, int]:
    """A device's architecture, 90 being sm_90, and its multiprocessors; read once. 0 and 4 where it is no GPU."""
    if device.type != "cuda":
        return 0, 4
    properties = torch.cuda.get_device_properties(device)
    return properties.major * 10 + properties.minor, properties.multi_processor_count


@cache
def usual_tiling(
    sm: int,
    rows: Rows,
    head_dim: int,
    dtype: torch.dtype,
    group: int,
    queries: int,
    coded: bool = False,
    crowded: bool = False,
) -> Tiling:
    """The tiling of a launch on an architecture, 90 being sm_90; `queries` are the tokens that a row is likely to have.
    `coded`: over a cache of codes, which take registers until they are multiplied; `crowded`: of many rows. Only sizes
    known on the host are read, so a launch never waits for the device."""
    wide = max(32, next_power_of_two(head_dim))
    tables = (OF_CODES if coded else TABLES).get(FAMILY.get(sm, sm), DEFAULT)
    if dtype == torch.float32:
        return fitted((FLOAT32_OF_CODES if coded else FLOAT32)[wide], group, queries)
    short, long = tables[Rows.SHORT][wide], tables[Rows.LONG][wide]
    if crowded and not coded:
        short = CROWDED.get(sm, {}).get(wide, short)
    if rows is Rows.SHORT and group <= short.block_m:
        return fitted(short, group, queries)
    # One M for all steps: a smaller one spills at as many warps, and would be compiled in the middle of a run.
    return replace(long, block_m=max(long.block_m, next_power_of_two(group)))


def candidates(rows: Rows, head_dim: int, group: int, queries: int) -> list[Tiling]:
    """Tilings of 16-bit launches that are worth timing on any architecture, some of them too large for its memory. Time
    each by `paged_attention(..., tiling=candidate)` on rows that are all of this kind."""
    wide = max(32, next_power_of_two(head_dim))
    keys = 32 if wide == 256 else 64
    if rows is Rows.SHORT:
        shapes = [(keys, 4, 2), (keys, 4, 3), (keys, 4, 4), (2 * keys, 4, 2), (2 * keys, 4, 3), (2 * keys, 8, 3)]
        shapes += [(keys // 2, 4, 3), (keys // 2, 4, 4), (keys // 2, 2, 3), (keys // 2, 2, 4), (keys, 2, 3)]
        # Of uneven contexts the longest end last: by a model of it finer parts gain up to a tenth there.
        tried = [Tiling(64, *shape, programs, 64) for shape in shapes for programs in (4, 8, 16)]
    else:
        shapes = [(128, keys, 8), (128, 2 * keys, 8), (64, keys, 4), (64, 2 * keys, 4), (64, keys, 8)]
        shapes += [(128, keys // 2, 8), (128, keys, 4)]
        tried = [Tiling(*shape, stages, 1) for shape in shapes for stages in (2, 3)]
    return list(dict.fromkeys(fitted(candidate, group, queries) for candidate in tried))


def fitted(chosen: Tiling, group: int, queries: int) -> Tiling:
    """The tiling with an M no larger than the rows need, and no smaller than a group or a tensor core's product."""
    least = max(LEAST_M, next_power_of_two(group))
    return replace(chosen, block_m=max(least, min(chosen.block_m, next_power_of_two(group * queries))))
