"""Triton kernels for the experts of a mixture: act(x gate^T) * (x up^T), times down^T, of the experts that each token
is sent to, added up by the weights that the router gave them.

A pair is a token and one of its experts. One launch sorts the pairs into tiles of one expert each; two multiply tile by
tile, so a weight is read once for all the tokens of a tile, and no expert that nobody asks for is read at all; a last
one adds up each token's. How many tiles there are is known on the device alone: programs beyond them end at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import constant, jit, launch, next_power_of_two, tl
from engine.kernels.products import expert_codes
from engine.kernels.products.coding import Coding
from engine.kernels.products.expert_codes import ExpertCodes, SortedPairs
from engine.kernels.products.gating import outputs_of, store_product
from engine.kernels.silu_mul import Activation

NO_PAIR = constant(0x7FFFFFFF)  # fills up an expert's last tile
CHUNK = 8  # times as many pairs as a tile has are sorted at a time
COLUMNS = 1024  # of a token that a program adds up


@jit(do_not_specialize=["pairs"])
def sort_pairs_kernel(
    order: tl.tensor,  # int32 [tiles, BLOCK_M]: the pairs of each tile, then `NO_PAIR`
    expert_of: tl.tensor,  # int32 [tiles]
    used: tl.tensor,  # int32 [1]: tiles that have pairs
    counts: tl.tensor,  # int32 [whole], to which the pairs of real tokens are added; or None
    real: tl.tensor,  # int32 [tokens, 1], 1 or 0; None: all are real
    ids: tl.tensor,  # [pairs]
    pairs: tl.tensor,
    each: tl.tensor,  # pairs of a token
    FIRST: tl.constexpr,  # the experts that are here, of all that there are
    HERE: tl.constexpr,
    LANES: tl.constexpr,  # a power of two above all experts
    BLOCK_M: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    await_inputs()
    expert = tl.program_id(0)
    lane, chunk = tl.arange(0, LANES), tl.arange(0, CHUNK)
    asked = tl.zeros([LANES], tl.int32)  # the last lane's are no pairs
    for start in tl.range(0, pairs, CHUNK):
        pair = start + chunk
        sent = tl.load(ids + pair, mask=pair < pairs, other=LANES - 1).to(tl.int32)
        asked += tl.histogram(sent, LANES)
    here = (lane >= FIRST) & (lane < FIRST + HERE)
    tiles = tl.where(here, (asked + BLOCK_M - 1) // BLOCK_M, 0)
    first = tl.sum(tl.where(lane < expert, tiles, 0))
    mine = tl.sum(tl.where(lane == expert, asked, 0))
    seen = 0
    told = 0
    for start in tl.range(0, pairs, CHUNK):
        pair = start + chunk
        sent = tl.load(ids + pair, mask=pair < pairs, other=LANES - 1).to(tl.int32)
        asking = (sent == expert).to(tl.int32)
        place = first * BLOCK_M + seen + tl.cumsum(asking, 0) - asking
        if (expert >= FIRST) & (expert < FIRST + HERE):
            tl.store(order + place, pair, mask=asking == 1)
        seen += tl.sum(asking)
        if real is not None:
            told += tl.sum(tl.load(real + pair // each, mask=asking == 1, other=0))
    own = tl.sum(tl.where(lane == expert, tiles, 0))
    last = mine // BLOCK_M * BLOCK_M + tl.arange(0, BLOCK_M)
    tl.store(order + first * BLOCK_M + last, NO_PAIR, mask=(last >= mine) & (last < own * BLOCK_M))
    for tile in tl.range(0, own):
        tl.store(expert_of + first + tile, expert - FIRST)
    if expert == 0:
        tl.store(used, tl.sum(tiles))
    if counts is not None:
        if real is None:
            told = mine
        tl.store(counts + expert, tl.load(counts + expert) + told)


@jit(do_not_specialize=["pairs"])
def expert_product_kernel(
    out: tl.tensor,  # [pairs, outputs]
    x: tl.tensor,  # [pairs / EACH, inputs]
    weight: tl.tensor,  # [experts, outputs, inputs]
    scales: tl.tensor,  # float32 [experts * outputs], of integers; or None
    bias: tl.tensor,  # [experts, outputs], or None
    order: tl.tensor,
    expert_of: tl.tensor,
    used: tl.tensor,
    pairs: tl.tensor,
    inputs: tl.tensor,
    outputs: tl.tensor,
    x_stride: tl.tensor,
    expert_stride: tl.tensor,
    row_stride: tl.tensor,
    EACH: tl.constexpr,  # pairs that a row of x has
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,  # whether BLOCK_K divides the inputs
    GATE: tl.constexpr,  # the activation of the first half of the outputs, or None
) -> None:
    await_inputs()
    tile = tl.program_id(0)  # programs side by side have the same outputs, and often the same expert
    if tile >= tl.load(used):
        return
    m = tl.load(order + tile * BLOCK_M + tl.arange(0, BLOCK_M))
    n, mine = outputs_of(tl.program_id(1), outputs, BLOCK_N, GATE)
    rows = weight + tl.load(expert_of + tile).to(tl.int64) * expert_stride
    rows += tl.where(mine, n, 0).to(tl.int64) * row_stride
    if scales is not None:
        own = scales + tl.load(expert_of + tile).to(tl.int64) * outputs
    there = m < pairs
    columns = x + (tl.where(there, m, 0) // EACH).to(tl.int64) * x_stride
    total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for start in tl.range(0, inputs, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        if EVEN:
            left = tl.load(rows[:, None] + k[None, :])
            right = tl.load(columns[None, :] + k[:, None], mask=there[None, :], other=0.0)
        else:
            left = tl.load(rows[:, None] + k[None, :], mask=(k < inputs)[None, :], other=0.0)
            right = tl.load(columns[None, :] + k[:, None], mask=(k < inputs)[:, None] & there[None, :], other=0.0)
        if scales is not None:
            left = left.to(x.dtype.element_ty)
        total = tl.dot(left, right, total, input_precision="ieee")
    if scales is not None:
        total *= tl.load(own + n, mask=mine, other=0.0)[:, None]
    if bias is not None:
        added = bias + tl.load(expert_of + tile).to(tl.int64) * outputs
        total += tl.load(added + n, mask=mine, other=0.0).to(tl.float32)[:, None]
    store_product(out, total, tl.program_id(1), m, pairs, outputs, GATE)


@jit
def add_pairs_kernel(
    out: tl.tensor,  # [tokens, columns]
    parts: tl.tensor,  # float32 [tokens * EACH, columns]
    weights: tl.tensor,  # [tokens * EACH]
    ids: tl.tensor,  # [tokens * EACH]
    columns: tl.tensor,
    EACH: tl.constexpr,
    FIRST: tl.constexpr,
    HERE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    await_inputs()
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for i in tl.static_range(0, EACH):
        expert = tl.load(ids + token * EACH + i).to(tl.int32)
        there = tl.where((expert >= FIRST) & (expert < FIRST + HERE), columns, 0)
        part = tl.load(parts + (token * EACH + i) * columns + at, mask=at < there, other=0.0)
        total += part * tl.load(weights + token * EACH + i).to(tl.float32)
    tl.store(out + token * columns + at, total, mask=at < columns)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is cut: pairs and outputs of a program, inputs at a time, its warps and pipeline stages."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int


FLOAT32 = Tiling(16, 32, 32, 4, 2)
# By the most pairs an expert, on average: few are bound by the bytes of the weights, many by arithmetic.
TILINGS = {8: Tiling(16, 32, 128, 4, 4), 48: Tiling(64, 64, 64, 4, 3), 1 << 30: Tiling(128, 128, 64, 8, 3)}


def tiling(pairs: int, experts: int, dtype: torch.dtype) -> Tiling:
    """The tiling of both products of so many pairs."""
    return FLOAT32 if dtype == torch.float32 else next(TILINGS[most] for most in TILINGS if pairs <= most * experts)


def experts(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    gate_up: Tensor | ExpertCodes,
    down: Tensor | ExpertCodes,
    activation: Activation,
    counts: Tensor | None = None,
    real: Tensor | None = None,
    cut: Tiling | expert_codes.Tiling | None = None,
    first: int = 0,
    whole: int | None = None,
    biases: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """What a token's experts make of it, added up by its weights: [tokens, hidden] like x, in its dtype.

    x [tokens, hidden], of contiguous rows; ids, of experts, and weights [tokens, each]; gate_up [experts, 2 * columns,
    hidden], the gates first; down [experts, hidden, columns]; both may be codes. `biases` [experts, 2 * columns] and
    [experts, hidden], contiguous, are added to their products, if they are given. Products are added up in float32;
    gates, what they gate and what comes of both are rounded. These may be some of `whole` experts, from `first` on:
    what others make of a token is not in the sum. `counts` int32 [whole] grows by how often each is asked, by tokens
    that are 1 in `real` int32 [tokens, 1], if it is given. `cut` takes the place of the usual tiling. Gives the same
    bits each time and never waits for the device, so it can be captured in a CUDA graph.
    """
    (tokens, each), (count, hidden, columns) = ids.shape, down.shape
    out = torch.empty_like(x)
    if not tokens:
        return out
    pairs, whole = tokens * each, whole or first + count
    cut = cut or (tiling if reads_numbers(down) else expert_codes.tiling)(pairs, whole, x.dtype)
    tiles = min(pairs, count + pairs // cut.block_m)
    lengths = tiles * cut.block_m, tiles, 1
    order, expert_of, used = (torch.empty(n, dtype=torch.int32, device=x.device) for n in lengths)
    sizes = first, count, next_power_of_two(whole + 1), cut.block_m, CHUNK * cut.block_m
    ids = ids.contiguous()
    launch(sort_pairs_kernel, (whole,), (order, expert_of, used, counts, real, ids, pairs, each, *sizes), num_warps=4)

    sorted_pairs = SortedPairs(order, expert_of, used, pairs, tiles)
    acted = torch.empty(pairs, columns, dtype=x.dtype, device=x.device)
    of_both, of_down = biases or (None, None)
    _multiply(acted, x, gate_up, of_both, sorted_pairs, each, activation, cut)
    parts = torch.empty(pairs, hidden, dtype=torch.float32, device=x.device)
    _multiply(parts, acted, down, of_down, sorted_pairs, 1, None, cut)
    block = min(COLUMNS, next_power_of_two(hidden))
    values = out, parts, weights.contiguous(), ids, hidden, each, first, count, block
    launch(add_pairs_kernel, (tokens, -(-hidden // block)), values, num_warps=4)
    return out


def reads_numbers(weight: Tensor | ExpertCodes) -> bool:
    """Whether its product is that of numbers: integers are made floats as they are read."""
    return isinstance(weight, Tensor) or weight.codes.coding is Coding.BYTES


def _multiply(
    out: Tensor,
    x: Tensor,
    weight: Tensor | ExpertCodes,
    bias: Tensor | None,
    sorted_pairs: SortedPairs,
    each: int,
    gate: Activation | None,
    cut: Tiling | expert_codes.Tiling,
) -> None:
    """Each pair's row of x, of which one has `each`, times the weight of its expert, plus its bias: [pairs,
    outputs]."""
    if isinstance(cut, expert_codes.Tiling):
        assert isinstance(weight, ExpertCodes)
        return expert_codes.multiply(out, x, weight, bias, sorted_pairs, each, gate, cut)
    scales: Tensor | None = None
    if isinstance(weight, ExpertCodes):
        scales, weight = weight.codes.scales, weight.codes.codes.view(weight.shape)
    _, outputs, inputs = weight.shape
    of_weight = inputs, outputs, x.stride(0), weight.stride(0), weight.stride(1)
    how = each, cut.block_m, cut.block_n, cut.block_k, inputs % cut.block_k == 0, gate and gate.value
    order, expert_of, used, pairs, tiles = sorted_pairs
    values = out, x, weight, scales, bias, order, expert_of, used, pairs, *of_weight, *how
    grid = tiles, -(-outputs // cut.block_n)
    launch(expert_product_kernel, grid, values, num_warps=cut.warps, num_stages=cut.stages)
