"""What the ranks on the processors of one machine do together, by compiled kernels."""

from __future__ import annotations

from torch import Tensor

from engine.kernels.cpu.exchange import Lanes
from engine.parallel.board import BUFFER, Board
from engine.parallel.group.ranked import Group


class SharedMemory(Group):
    """Of ranks on the processors of one machine, by compiled kernels."""

    recordable = True

    def __init__(self, board: Board, rank: int, timeout: float) -> None:
        super().__init__(board, rank, "shared memory")
        self._lanes = Lanes(board.address, rank, board.ranks, board.lane, board.buffers, BUFFER, timeout)

    def sum(self, x: Tensor) -> Tensor:
        return self._lanes.sum(x)

    def gather(self, x: Tensor, total: int) -> Tensor:
        return self._lanes.gather(x, total)

    def share(self, x: Tensor) -> Tensor:
        return self._lanes.share(x)

    def sum_share(self, x: Tensor) -> Tensor:
        return self._lanes.sum_share(x)

    def rows(self, x: Tensor, rows: int) -> Tensor:
        return self._lanes.rows(x, rows)
