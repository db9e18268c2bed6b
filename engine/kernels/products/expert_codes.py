"""Products of a mixture's experts whose weights are 4-bit codes: as `four_bits` multiplies a layer's, tile by tile of
the pairs that `experts` sorted. Codes of 8 bits are made floats as they are read, by the product of plain weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import jit, launch, tl
from engine.kernels.products.codes import Codes
from engine.kernels.products.coding import Coding
from engine.kernels.products.four_bits import BLOCK_K, four_bit_product, table_of
from engine.kernels.products.gating import outputs_of, store_product
from engine.kernels.silu_mul import Activation

HALF_BLOCK = 32  # inputs that share a scale in MXFP4, and in AWQ of groups that are no multiple of more


@dataclass(frozen=True, slots=True)
class ExpertCodes:
    """The weight `[experts, outputs, inputs]` of so many experts, one's outputs below another's in `codes`: of BYTES,
    or of 4 bits, with a scale for each so many inputs that `block_of` divides. `table`: that of `table_for`."""

    codes: Codes
    experts: int
    table: Tensor | None

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.experts, self.codes.outputs // self.experts, self.codes.inputs


def serves(codes: Codes) -> bool:
    """Whether experts with such codes are multiplied here."""
    if codes.coding is Coding.BYTES:
        return True
    block = block_of(codes)
    groups = codes.group % block == 0 if codes.coding is Coding.STEPS else codes.group == block
    return groups and codes.inputs % block == 0


def block_of(codes: Codes) -> int:
    """How many inputs are multiplied before a scale is applied."""
    return HALF_BLOCK if codes.group % BLOCK_K else BLOCK_K


def table_for(codes: Codes, dtype: torch.dtype) -> Tensor | None:
    """The `table` of codes that are served, for tokens of this dtype. Waits for the device."""
    if codes.table is None or dtype is torch.float32:
        return codes.table
    return table_of(tuple(codes.table.tolist()), dtype, codes.table.device)


class SortedPairs(NamedTuple):
    """Pairs in tiles of one expert each, as `experts.sort_pairs_kernel` leaves them."""

    order: Tensor
    expert_of: Tensor
    used: Tensor
    pairs: int
    tiles: int  # at the most


@jit(do_not_specialize=["pairs"])
def expert_four_bits_kernel(
    out: tl.tensor,  # [pairs, outputs]
    x: tl.tensor,  # [pairs / EACH, inputs]
    packed: tl.tensor,  # int32 [experts, outputs, inputs / 8]
    scales: tl.tensor,  # as `four_bit_product` has them
    fine: tl.tensor,
    coarse: tl.tensor,
    first: tl.tensor,  # int32 [experts * outputs]; or None
    table: tl.tensor,
    bias: tl.tensor,  # [experts, outputs], or None
    order: tl.tensor,
    expert_of: tl.tensor,
    used: tl.tensor,
    pairs: tl.tensor,
    outputs: tl.tensor,
    blocks: tl.tensor,
    x_stride: tl.tensor,
    EACH: tl.constexpr,  # pairs that a row of x has
    SHARED: tl.constexpr,  # blocks that share a scale
    EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    AT_ONCE: tl.constexpr,
    SHARES: tl.constexpr,
    STAGES: tl.constexpr,
    GATE: tl.constexpr,  # the activation of the first half of the outputs, or None
) -> None:
    await_inputs()
    tile = tl.program_id(0)
    if tile >= tl.load(used):
        return
    m = tl.load(order + tile * BLOCK_M + tl.arange(0, BLOCK_M))
    n, within = outputs_of(tl.program_id(1), outputs, BLOCK_N, GATE)
    row = tl.load(expert_of + tile).to(tl.int64) * outputs + tl.minimum(n, outputs - 1)
    there = m < pairs
    x_rows = x + (tl.where(there, m, 0) // EACH).to(tl.int64)[None, :, None] * x_stride
    if first is None:
        before = None
    else:
        before = tl.load(first + row)[None, :, None]
    product = four_bit_product(
        x_rows, there[None, :, None], packed, row[None, :, None] * blocks, scales, fine, coarse, before, table, blocks,
        x.dtype.element_ty, False, SHARED, EVEN, BLOCK_K, AT_ONCE, SHARES, STAGES,
    )  # fmt: skip
    if bias is not None:
        own = bias + tl.load(expert_of + tile).to(tl.int64) * outputs + n
        product += tl.load(own, mask=within, other=0.0).to(tl.float32)[:, None]
    store_product(out, product, tl.program_id(1), m, pairs, outputs, GATE)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is cut: pairs and outputs of a program, blocks of 64 inputs that a share of them reads at once, the
    shares, one or one a warp, warps and pipeline stages."""

    block_m: int
    block_n: int
    at_once: int
    shares: int
    warps: int
    stages: int


FLOAT32 = Tiling(16, 16, 1, 1, 4, 2)
# By the most pairs an expert, on average, as `experts` has them: cut as `four_bits` cuts a layer of as many rows.
TILINGS = {8: Tiling(8, 32, 2, 4, 4, 3), 48: Tiling(32, 32, 1, 4, 4, 3)}
MANY = Tiling(64, 64, 1, 1, 4, 3)


def tiling(pairs: int, experts: int, dtype: torch.dtype) -> Tiling:
    """The tiling of both products of so many pairs."""
    if dtype is torch.float32:
        return FLOAT32
    return next((TILINGS[most] for most in TILINGS if pairs <= most * experts), MANY)


def multiply(
    out: Tensor,
    x: Tensor,
    weight: ExpertCodes,
    bias: Tensor | None,
    sorted_pairs: SortedPairs,
    each: int,
    gate: Activation | None,
    cut: Tiling,
) -> None:
    """Each pair's row of x, of which one has `each`, times the weight of its expert, plus its bias: [pairs,
    outputs]."""
    codes, (_, outputs, inputs) = weight.codes, weight.shape
    order, expert_of, used, pairs, tiles = sorted_pairs
    block_k = block_of(codes)
    blocks, at_once = inputs // block_k, cut.at_once
    if cut.at_once * cut.shares > 1:  # as many inputs as of whole blocks
        at_once *= BLOCK_K // block_k
    held = codes.codes.view(torch.int32), codes.scales, codes.fine, codes.coarse, codes.first, weight.table
    even = blocks % (at_once * cut.shares) == 0
    of_inputs = each, codes.group // block_k, even
    how = *of_inputs, cut.block_m, cut.block_n, block_k, at_once, cut.shares, cut.stages, gate and gate.value
    values = out, x, *held, bias, order, expert_of, used, pairs, outputs, blocks, x.stride(0), *how
    grid = tiles, -(-outputs // cut.block_n)
    launch(expert_four_bits_kernel, grid, values, num_warps=cut.warps, num_stages=cut.stages)
