"""Triton kernels for what adapters (LoRA) add to a product: (x down^T) up^T of the adapter of each row.

One kernel multiplies a few rows by the narrow matrices, cut along their depth, so that of few rows many programs share
the work; another adds up the parts, multiplies them by the wide ones and adds that to the product. A program goes
through the adapters that its rows have, each as a matrix product of which the other rows are zeros: rows of one
adapter, as those of a prompt, take one, and those of many at most as many as there are adapters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import jit, launch, next_power_of_two, tl
from engine.kernels.silu_mul import in_rows, row_stride

ROWS, COLUMNS, DEPTH = 16, 64, 128  # of a program's tiles: rows, columns of the product, depth at a time
PART = 512  # of the depth that a program of the first kernel has, at least; few rows are not bound by it
LEAST, MOST = 16, {torch.float32: 16}  # ranks of a tile: what matrix units take; what registers hold
USUAL_MOST = 64


@jit(do_not_specialize=["tokens"])
def adapter_down_kernel(
    low: tl.tensor,  # float32 [parts, tokens, LANES], written
    x: tl.tensor,  # [tokens, depth]
    down: tl.tensor,  # [adapters, LANES, depth]: of each layer its ranks
    ids: tl.tensor,  # int64 [tokens]: 0, or 1 + the number of the adapter
    tokens: tl.tensor,
    depth: tl.tensor,
    x_stride: tl.tensor,
    ADAPTERS: tl.constexpr,
    LANES: tl.constexpr,
    TILE: tl.constexpr,
    PART: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    await_inputs()
    part = tl.program_id(2)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    adapter = tl.load(ids + row, mask=row < tokens, other=0).to(tl.int32)
    lane = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros([BLOCK_M, TILE], tl.float32)
    for number in tl.range(0, ADAPTERS):
        mine = adapter == number + 1
        if tl.max(mine.to(tl.int32)) > 0:
            for start in tl.range(part * PART, part * PART + PART, BLOCK_K):
                k = start + tl.arange(0, BLOCK_K)
                there = k < depth
                left = x + row.to(tl.int64)[:, None] * x_stride + k[None, :]
                right = down + (number * LANES + lane).to(tl.int64)[None, :] * depth + k[:, None]
                left = tl.load(left, mask=mine[:, None] & there[None, :], other=0.0)
                right = tl.load(right, mask=there[:, None], other=0.0)
                total = tl.dot(left, right, total, input_precision="ieee")
    place = (part * tokens + row).to(tl.int64)[:, None] * LANES + lane[None, :]
    tl.store(low + place, total, mask=(row < tokens)[:, None])


@jit(do_not_specialize=["tokens"])
def adapter_up_kernel(
    out: tl.tensor,  # [tokens, columns], added to
    low: tl.tensor,  # float32 [parts, tokens, LANES]
    up: tl.tensor,  # [adapters, columns, RANK]
    ids: tl.tensor,
    tiles: tl.tensor,  # int32 [tiles, 3]: of each its layer, its first column, and the end of its layer's
    tokens: tl.tensor,
    columns: tl.tensor,
    ADAPTERS: tl.constexpr,
    LANES: tl.constexpr,
    RANK: tl.constexpr,
    TILE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    await_inputs()
    tile = tiles + 3 * tl.program_id(1)
    layer, first, end = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    here = row < tokens
    adapter = tl.load(ids + row, mask=here, other=0).to(tl.int32)
    if tl.max(adapter) > 0:
        column, asks = first + tl.arange(0, BLOCK_N), here & (adapter > 0)
        total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for start in tl.range(0, RANK, TILE):
            rank = start + tl.arange(0, TILE)
            each = tl.zeros([BLOCK_M, TILE], tl.float32)
            for part in tl.range(0, PARTS):
                place = (part * tokens + row).to(tl.int64)[:, None] * LANES + (layer * RANK + rank)[None, :]
                each += tl.load(low + place, mask=asks[:, None], other=0.0)
            for number in tl.range(0, ADAPTERS):
                mine = adapter == number + 1
                if tl.max(mine.to(tl.int32)) > 0:
                    right = up + (number * columns + column).to(tl.int64)[None, :] * RANK + rank[:, None]
                    right = tl.load(right, mask=(column < end)[None, :], other=0.0)
                    left = tl.where(mine[:, None], each, 0.0).to(up.dtype.element_ty)
                    total = tl.dot(left, right, total, input_precision="ieee")
        place = out + row.to(tl.int64)[:, None] * columns + column[None, :]
        mask = asks[:, None] & (column < end)[None, :]
        tl.store(place, tl.load(place, mask=mask, other=0.0).to(tl.float32) + total, mask=mask)


@dataclass(frozen=True, slots=True)
class Tiled:
    """`down` `[adapters, layers * rank, depth]` and `up` `[adapters, columns, rank]` of a rank that is so many tiles of
    `tile`, and the `tiles` of columns int32 `[tiles, 3]`, of which none belongs to two layers."""

    down: Tensor
    up: Tensor
    tiles: Tensor
    tile: int

    @property
    def bytes(self) -> int:
        return self.down.nbytes + self.up.nbytes + self.tiles.nbytes


def lay_out(down: Tensor, up: Tensor, widths: list[int]) -> Tiled:
    """Of `down` `[adapters, layers * rank, depth]` and `up` `[adapters, columns, rank]`, whose layers have `widths`
    columns."""
    adapters, rank, depth = len(up), up.shape[2], down.shape[2]
    tile = tile_of(rank, down.dtype)
    wide = -(-rank // tile) * tile
    down = pad(down.view(adapters, len(widths), rank, depth), (0, 0, 0, wide - rank))
    tiles, begin = list[tuple[int, int, int]](), 0
    for layer, width in enumerate(widths):
        tiles += [(layer, first, begin + width) for first in range(begin, begin + width, COLUMNS)]
        begin += width
    return Tiled(
        down.reshape(adapters, len(widths) * wide, depth).contiguous(),
        pad(up, (0, wide - rank)).contiguous(),
        torch.tensor(tiles, dtype=torch.int32, device=up.device),
        tile,
    )


def tile_of(rank: int, dtype: torch.dtype) -> int:
    """Ranks of a program."""
    return min(max(LEAST, next_power_of_two(rank)), MOST.get(dtype, USUAL_MOST))


def adapt(out: Tensor, x: Tensor, tiled: Tiled, ids: Tensor) -> None:
    """Adds to the rows of `out` `[..., columns]`, contiguous, what adapters make of those of `x` `[..., depth]`: of row
    r that of the adapter `ids[r]` - 1, int64, of 0 nothing. Never waits for the device, so it can be captured."""
    x = in_rows(x)
    (adapters, columns, rank), depth = tiled.up.shape, x.shape[-1]
    tokens, lanes, parts = out.numel() // columns, tiled.down.shape[1], -(-depth // PART)
    low = torch.empty(parts, tokens, lanes, dtype=torch.float32, device=x.device)
    rows, block = -(-tokens // ROWS), DEPTH if x.dtype != torch.float32 else DEPTH // 2
    values = low, x, tiled.down, ids, tokens, depth, row_stride(x), adapters, lanes, tiled.tile, PART, ROWS, block
    launch(adapter_down_kernel, (rows, lanes // tiled.tile, parts), values, num_warps=4)
    kind = adapters, lanes, rank, tiled.tile
    summed = out, low, tiled.up, ids, tiled.tiles, tokens, columns, *kind, parts, ROWS, COLUMNS
    launch(adapter_up_kernel, (rows, len(tiled.tiles)), summed, num_warps=4)
