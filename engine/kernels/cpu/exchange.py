"""What the ranks of a split model hand each other through memory that they share: sums over all, columns gathered to
the first, rows to all. Kernels like any other, so that recorded steps have them too."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.cpu import structures as held
from engine.kernels.cpu.calls import part_of, run

ALL_SUMMED, COLUMNS, SHARE_SUMMED, ROWS = range(4)  # of a `held.Exchange`, as `native/exchange.c` has them


@dataclass(frozen=True, slots=True)
class Lanes:
    """The memory that `ranks` share, as `native/exchange.c` divides it: from `address` on, `lane` bytes a rank, in each
    two buffers of `buffer` bytes from `buffers` on. A rank that is waited for longer than `patience` seconds fails the
    call."""

    address: int
    rank: int
    ranks: int
    lane: int
    buffers: int
    buffer: int
    patience: float

    def sum(self, x: Tensor) -> Tensor:
        """Of what all ranks hand over, `[..., width]`, the same for all."""
        return self._exchange(x, x.shape[-1], x.shape[:-1], ALL_SUMMED)

    def gather(self, x: Tensor, total: int) -> Tensor:
        """`[..., total]` of the columns that the ranks hand over, on rank 0; on the others what they hand over."""
        return self._exchange(x, total, x.shape[:-1], COLUMNS)

    def share(self, x: Tensor) -> Tensor:
        """This rank's rows of x `[1, rows, ...]`, which every rank has."""
        x, rows = x.contiguous(), x.shape[1]
        out = torch.empty(1, self._share(rows), *x.shape[2:], dtype=x.dtype)
        row = x[0].numel() * x.itemsize // max(rows, 1)
        run(held.Share(part_of(rows, x), out.data_ptr(), x.data_ptr(), self.rank, self.ranks, row), 1)
        return out

    def sum_share(self, x: Tensor) -> Tensor:
        """Of the sum of what all ranks hand over, `[1, rows, width]`, this rank's rows, to the bit those of `sum`."""
        return self._exchange(x, x.shape[-1], (1, self._share(x.shape[1])), SHARE_SUMMED, x.shape[1])

    def rows(self, x: Tensor, rows: int) -> Tensor:
        """`[1, rows, width]` for all, of the rows that are each rank's `share`."""
        return self._exchange(x, x.shape[-1], (1, rows), ROWS, rows)

    def _share(self, rows: int) -> int:
        return rows * (self.rank + 1) // self.ranks - rows * self.rank // self.ranks

    def _exchange(self, x: Tensor, total: int, shape: Sequence[int], kind: int, rows: int | None = None) -> Tensor:
        """`shape` of the rows that come of it; `rows` of the whole step, where x has others."""
        x, width = x.contiguous(), x.shape[-1]
        if total * x.itemsize > self.buffer:
            raise ValueError(f"a row of {total:,} values is more than ranks send at once: {self.buffer:,} bytes")
        out = x if kind == COLUMNS and self.rank else torch.empty(*shape, total, dtype=x.dtype)
        places = None if out is x else out.data_ptr(), x.data_ptr(), self.address
        sizes = self.rank, self.ranks, self.lane, self.buffers, self.buffer, width, total, int(1e9 * self.patience)
        part = part_of(x.numel() // width if rows is None else rows, x)
        run(held.Exchange(part, *places, *sizes, kind), 1)
        return out
