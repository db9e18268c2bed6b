"""What ranks do together: sums over them, what the first of them gathers, and rows that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from engine.parallel.board import Board


class Ranked(ABC):
    """The ranks of one model, of which this process is `rank`; `name`: over what they meet. Its calls fail where
    another rank does not come within the timeout, or is gone, with whatever error the backend has for it."""

    recordable = False  # whether recorded steps have its calls too
    capturable = False  # whether CUDA graphs do
    within: bool  # a step: between `begin` and `end`

    def __init__(self, board: Board, rank: int, name: str) -> None:
        self.board, self.rank, self.ranks, self.name = board, rank, board.ranks, name
        self.within = False
        board.begin(rank, 0)

    def begin(self, step: int) -> None:
        self.within = True
        self.board.begin(self.rank, step)

    def end(self) -> None:
        self.within = False

    def check(self) -> None:  # noqa: B027
        """Raises RuntimeError where what this rank has of the others is not what they computed."""

    def settle(self, step: int) -> None:  # noqa: B027
        """The board hears what a step took this rank that its device is done with."""

    def close(self) -> None:  # noqa: B027
        """Nothing waits for other ranks any more."""

    @abstractmethod
    def largest(self, value: float, device: torch.device) -> float:
        """Of what is said by all ranks that have to decide alike."""


class Group(Ranked):
    """Ranks that compute every layer together."""

    @abstractmethod
    def sum(self, x: Tensor) -> Tensor:
        """Of what all ranks hand over, for all of them; `x` may be it."""

    @abstractmethod
    def gather(self, x: Tensor, total: int) -> Tensor:
        """`[..., total]` of all ranks' columns on rank 0, each having its share of them; on others their own."""

    @abstractmethod
    def share(self, x: Tensor) -> Tensor:
        """This rank's rows of x `[1, rows, ...]`, which all have: as even a share as can be, of few rows maybe none."""

    @abstractmethod
    def sum_share(self, x: Tensor) -> Tensor:
        """Of the `sum` of `[1, rows, width]` this rank's rows; `x` may be overwritten."""

    @abstractmethod
    def rows(self, x: Tensor, rows: int) -> Tensor:
        """`[1, rows, width]` for all ranks, of their shares `x`."""

    def largest(self, value: float, device: torch.device) -> float:
        told = torch.zeros(1, self.ranks, dtype=torch.float32, device=device)
        told[0, self.rank] = value
        return float(self.sum(told).max())
