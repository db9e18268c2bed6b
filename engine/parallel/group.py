"""What ranks do together: sums over them, what the first of them gathers, and rows that they share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from engine.config.parallel import Parallel
from engine.config.specs import InvalidInput
from engine.kernels.cpu.exchange import Lanes
from engine.kernels.cpu.library import native
from engine.parallel.board import BUFFER, Board
from engine.parallel.split import shares


class Ranked(ABC):
    """The ranks of one model, of which this process is `rank`; `name`: over what they meet. Its calls fail where
    another rank does not come within the timeout, or is gone, with whatever error the backend has for it."""

    recordable = False  # whether recorded steps have its calls too
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


class Gloo(Group):
    """Of torch.distributed's collectives those of any processor, for what our kernels do not serve."""

    def __init__(self, board: Board, rank: int, timeout: float, store: Path) -> None:
        super().__init__(board, rank, "gloo")
        made: Any = dist.ProcessGroupGloo  # its stubs know little of it
        options = made._Options()
        options._devices = [made.create_device(hostname="127.0.0.1")]  # nobody else can reach it
        options._timeout, options._threads = timedelta(seconds=timeout), 1
        self._group = made(dist.FileStore(str(store), board.ranks), rank, board.ranks, options)

    def sum(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        with self._waiting(x):
            self._group.allreduce([x]).wait()
        return x

    def gather(self, x: Tensor, total: int) -> Tensor:
        x = x.contiguous()
        if self.rank:
            with self._waiting(x):
                self._group.send([x], 0, 0).wait()
            return x
        widths = [end - begin for begin, end in (shares(total, rank, self.ranks) for rank in range(self.ranks))]
        parts = [x, *(x.new_empty(*x.shape[:-1], width) for width in widths[1:])]
        with self._waiting(x):
            for rank, part in enumerate(parts[1:], 1):
                self._group.recv([part], rank, 0).wait()
        return torch.cat(parts, -1)

    def share(self, x: Tensor) -> Tensor:
        begin, end = shares(x.shape[1], self.rank, self.ranks)
        return x[:, begin:end]

    def sum_share(self, x: Tensor) -> Tensor:
        return self.share(self.sum(x)).clone()  # the sum of all rows is given back

    def rows(self, x: Tensor, rows: int) -> Tensor:
        sizes = [end - begin for begin, end in (shares(rows, rank, self.ranks) for rank in range(self.ranks))]
        mine = nn.functional.pad(x, (0, 0, 0, max(sizes) - x.shape[1])).contiguous()
        parts = [torch.empty_like(mine) for _ in sizes]
        with self._waiting(x):
            self._group.allgather([parts], [mine]).wait()
        return torch.cat([part[:, :size] for part, size in zip(parts, sizes)], 1)

    @contextmanager
    def _waiting(self, x: Tensor) -> Iterator[None]:
        begun = time.monotonic()
        self.board.waits(self.rank, begun)
        yield
        self.board.waits(self.rank, 0)
        self.board.add(self.rank, time.monotonic() - begun, x.nbytes)


def join(parallel: Parallel, backend: str, board: Board, rank: int, store: Path) -> Group:
    """This process as a rank of those that share the board; `backend` as `chosen`. Waits for the others to come."""
    if backend == "shared":
        return SharedMemory(board, rank, parallel.timeout)
    return Gloo(board, rank, parallel.timeout, store)


def chosen(parallel: Parallel, dtype: torch.dtype) -> str:
    """The backend for a CPU's ranks that compute in this dtype. Raises InvalidInput for one that does not serve it."""
    here = native().library is not None and dtype in (torch.float32, torch.bfloat16)
    if parallel.backend == "auto":
        return "shared" if here else "gloo"
    if parallel.backend == "shared" and not here:
        raise InvalidInput("parallel_backend='shared': it is for float32 or bfloat16, and needs a C compiler; use auto")
    return parallel.backend
