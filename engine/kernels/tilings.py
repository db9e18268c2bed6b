"""How attention launches are cut, by GPU architecture: reasoned from bytes in flight and registers, not yet measured.

`candidates` are what a measurement should try: give each to `paged_attention(..., tiling=...)` and put the fastest into
`TABLES`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

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
    `programs` a multiprocessor.
    """

    block_m: int
    block_keys: int
    num_warps: int
    num_stages: int
    programs: int


Table = dict[int, Tiling]  # by padded head_dim

# IEEE products of float32 have no tensor cores: small tiles keep them in registers.
_FLOAT32: Table = {
    32: Tiling(16, 32, 4, 2, 4),
    64: Tiling(16, 32, 4, 2, 4),
    128: Tiling(16, 32, 4, 2, 4),
    256: Tiling(16, 16, 4, 2, 4),
}
_SHORT: Table = {
    32: Tiling(64, 64, 4, 3, 4),
    64: Tiling(64, 64, 4, 3, 4),
    128: Tiling(64, 64, 4, 2, 4),
    256: Tiling(64, 32, 4, 2, 4),
}
_LONG: Table = {
    32: Tiling(64, 64, 4, 3, 2),
    64: Tiling(64, 64, 4, 3, 2),
    128: Tiling(64, 64, 4, 2, 2),
    256: Tiling(64, 32, 8, 2, 1),
}
DEFAULT = {Rows.SHORT: _SHORT, Rows.LONG: _LONG}  # fits the 99 KB of shared memory of consumer cards
TABLES = {80: DEFAULT, 89: DEFAULT, 90: DEFAULT, 100: DEFAULT}


def tiling(sm: int, rows: Rows, head_dim: int, dtype: torch.dtype, group: int, queries: int) -> Tiling:
    """The tiling of a launch on an architecture, 90 being sm_90; `queries` are the tokens that a row is likely to have.

    Only sizes known on the host are read, so a launch never waits for the device.
    """
    table = _FLOAT32 if dtype == torch.float32 else TABLES.get(sm, DEFAULT)[rows]
    chosen = table[max(32, next_power_of_two(head_dim))]
    return fitted(chosen, group, queries)


def fitted(chosen: Tiling, group: int, queries: int) -> Tiling:
    """The tiling with an M no larger than the rows need, and no smaller than a group or a tensor core's product."""
    least = max(LEAST_M, next_power_of_two(group))
    return replace(chosen, block_m=max(least, min(chosen.block_m, next_power_of_two(group * queries))))
