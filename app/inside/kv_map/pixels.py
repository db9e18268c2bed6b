"""The KV map's picture: cells of blocks as 32-bit pixels 0xffRRGGBB. No Qt in here.

A cell is filled from its bottom as far as its block is; where cells are too small for that, its colour says how full it
is. Costs O(pixels), whatever happened.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from app.inside.kv_map.state import CACHED, FREE, KvState
from app.plot.pixels import packed
from engine.trace import Array

DETAILED = 4  # device pixels from which on a cell shows its fill and has a gap beside it
NOTCHED = 3  # from which on a shared block has its corner cut
LEVELS = 8  # of fill, in smaller cells
TINT = 0.24  # how much of the owner's colour the empty part of a block has
DIMMED = 0.55
TALLEST = 3  # widths that a cell without detail is high, where there is room
FEWEST = 64  # blocks of a large pool that are shown at least
TIDY = 8  # columns are a multiple of this where hardly any room is lost by it


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells in device pixels: columns are `pitch` apart and rows `rise`, which is more only where cells have no detail.
    `each`: blocks a cell, above 1 only where the pool has more blocks than there are pixels."""

    blocks: int
    columns: int
    rows: int
    pitch: int
    rise: int
    each: int = 1

    @property
    def gap(self) -> int:
        return 0 if self.pitch < DETAILED else 1 if self.pitch < 14 else 2

    @property
    def size(self) -> tuple[int, int]:
        """A cell's width and height."""
        return self.pitch - self.gap, self.rise - self.gap

    def corner(self, block: int) -> tuple[int, int]:
        """Left and top of a block's cell."""
        row, column = divmod(block // self.each, self.columns)
        return column * self.pitch, row * self.rise

    def block_at(self, x: float, y: float) -> int:
        """The block at this pixel; -1 beside all."""
        column, row = math.floor(x / self.pitch), math.floor(y / self.rise)
        block = (row * self.columns + column) * self.each
        return block if 0 <= column < self.columns and row >= 0 and block < self.blocks else -1


def front_of(reach: int, blocks: int) -> int:
    """How many of a pool's blocks are worth showing where only the first `reach` were ever taken: a power of two, so
    that a map which grows is seldom laid out anew; all, where the others are no more than these."""
    front = FEWEST
    while front < reach:
        front *= 2
    return front if 2 * front < blocks else blocks


@lru_cache(maxsize=16)
def grid_for(blocks: int, width: int, height: int, largest: int) -> Grid:
    """The largest cells, at most `largest`, that show all blocks in so many pixels."""
    width, height = max(1, width), max(1, height)
    pitch = min(largest, math.isqrt(width * height // blocks))
    while pitch > 1 and (width // pitch) * (height // pitch) < blocks:
        pitch -= 1
    if pitch < 1 or (width // pitch) * (height // pitch) < blocks:
        each = math.ceil(blocks / (width * height))
        return Grid(blocks, width, math.ceil(math.ceil(blocks / each) / width), 1, 1, each)
    columns = width // pitch
    tidy = columns - columns % TIDY
    if tidy and (columns - tidy) * pitch <= 0.12 * width and math.ceil(blocks / tidy) * pitch <= height:
        columns = tidy
    columns = min(columns, blocks)
    rows = math.ceil(blocks / columns)
    rise = pitch if pitch >= DETAILED else max(pitch, min(TALLEST * pitch, height // rows))
    return Grid(blocks, columns, rows, pitch, rise)


class PoolInk:
    """Colours [3], components 0 to 1: of the ground, of a free cell, of the lines over a cached one. `own` gives a
    request's. Make a new one when the theme changes."""

    def __init__(self, ground: Array, free: Array, line: Array, own: Callable[[int], Array]) -> None:
        self._ground, self._free, self._line = (np.asarray(c, np.float32) for c in (ground, free, line))
        self._own = own
        self._image = np.zeros((0, 0), np.uint32)

    def paint(self, state: KvState, grid: Grid, selected: int) -> Array:
        """Pixels [rows * rise, columns * pitch] of the pool's first `grid.blocks`, good until the next call. Blocks of
        the selected request are in its colour, all others muted; shared blocks have a corner cut."""
        shape = grid.rows * grid.rise, grid.columns * grid.pitch
        if self._image.shape != shape:
            self._image = np.empty(shape, np.uint32)
        chosen = np.unique(np.concatenate([*state.samples(selected).values(), np.zeros(0, np.int32)]))
        dim = len(chosen) > 0
        code, colors = self._codes(state, chosen.astype(np.int64), selected, dim)
        cells = grid.rows * grid.columns
        if grid.each > 1:
            self._blend(state, grid, code, colors)
            return self._image
        more = np.zeros(cells - grid.blocks, np.int32)
        code = np.append(code[: grid.blocks], more.astype(code.dtype)).reshape(grid.rows, grid.columns)
        filled = np.append(state.filled[: grid.blocks], more).reshape(code.shape)
        view = self._image.reshape(grid.rows, grid.rise, grid.columns, grid.pitch)
        if grid.pitch < DETAILED:
            view[:] = colors.reshape(-1)[code * (LEVELS + 1) + filled * LEVELS // state.size][:, None, :, None]
        else:
            self._fill(view, grid, code, filled, colors, state.size)
        tiles = view.transpose(0, 2, 1, 3)
        if grid.pitch * grid.rise > 1:
            self._hatch(tiles, np.flatnonzero(state.owner[: grid.blocks] == CACHED), grid, dim)
        if grid.pitch >= NOTCHED:
            shared, side = np.flatnonzero(state.references[: grid.blocks] > 1), grid.size[0]
            size = max(1, round(0.4 * side))
            row, column = np.divmod(shared, grid.columns)
            for y in range(size):
                tiles[row, column, y, side - size + y : side] = colors[0, 0]
        return self._image

    def _codes(self, state: KvState, chosen: Array, selected: int, dim: bool) -> tuple[Array, Array]:
        """By block: its row in the colours; colours [codes, fill]: the ground, cached, free, then owners."""
        tables = state.tables
        owners = np.unique(tables.key[tables.live] // 64)
        own = np.array([self._own(request) for request in owners.tolist()], np.float32).reshape(-1, 3)
        share = np.linspace(TINT, 1.0, LEVELS + 1, dtype=np.float32)
        strength = np.where(dim & (owners != selected), np.float32(DIMMED), np.float32(1.0))
        mixed = self._ground + (own - self._ground)[:, None, :] * (share[None, :, None] * strength[:, None, None])
        fixed = np.repeat(np.stack([self._ground, self._free, self._free])[:, None], LEVELS + 1, axis=1)
        fixed[1] = self._ground + 0.36 * (self._line - self._ground)  # where there is no room for lines
        colors = packed(np.concatenate([fixed, mixed]))
        index = np.zeros(int(owners[-1]) + 3 if len(owners) else 2, np.int32)
        index[CACHED + 2], index[FREE + 2] = 1, 2
        index[owners + 2] = 3 + np.arange(len(owners))
        code = index[state.owner + 2]
        if dim:
            code[chosen] = index[selected + 2]
        return code, colors

    def _fill(self, view: Array, grid: Grid, code: Array, filled: Array, colors: Array, size: int) -> None:
        side = grid.size[0]
        high = -(-filled * side // size)
        high[(filled < size) & (high == side)] = side - 1
        full, empty = colors[:, -1][code], colors[:, 0][code]
        empty[code == 1] = colors[2, 0]
        full[code == 1] = colors[2, 0]
        view[:, side:] = colors[0, 0]
        view[:, :, :, side:] = colors[0, 0]
        for y in range(side):
            view[:, y, :, :side] = np.where(high >= side - y, full, empty)[:, :, None]

    def _hatch(self, tiles: Array, cached: Array, grid: Grid, dim: bool) -> None:
        """Lines over cached blocks."""
        if not len(cached):
            return
        side, height = grid.size
        x, y = np.meshgrid(np.arange(side), np.arange(height))
        period = 2 if side < 6 else max(4, round(side / 3))
        lines = (x + y) % period < (1 if side < 12 else 1.5)
        strength = (0.42 if side < 6 else 0.6) * (DIMMED if dim else 1.0)
        colors = packed(np.stack([self._free, self._ground + strength * (self._line - self._ground)]))
        row, column = np.divmod(cached, grid.columns)
        tiles[row, column, :height, :side] = colors[lines.astype(np.int64)]

    def _blend(self, state: KvState, grid: Grid, code: Array, colors: Array) -> None:
        """A pixel for several blocks: the mean of their colours."""
        pixels = colors.reshape(-1)[code * (LEVELS + 1) + state.filled * LEVELS // state.size][: grid.blocks]
        cells = grid.rows * grid.columns
        more = np.full(cells * grid.each - len(pixels), colors[0, 0], np.uint32)
        groups = np.append(pixels, more).reshape(cells, grid.each)
        result = np.full(cells, 0xFF000000, np.uint32)
        for shift in map(np.uint32, (16, 8, 0)):
            mean = ((groups >> shift) & np.uint32(0xFF)).mean(axis=1)
            result |= mean.astype(np.uint32) << shift
        self._image[:] = result.reshape(self._image.shape)
