"""Sums over the ranks of a split model and gathers to the first of them, through memory that they share: kernels like
any other, so that recorded steps have them too."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.cpu import structures as held
from engine.kernels.cpu.calls import part_of, run


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
        return self._exchange(x, x.shape[-1], gather=False)

    def gather(self, x: Tensor, total: int) -> Tensor:
        """`[..., total]` of the columns that the ranks hand over, on rank 0; on the others what they hand over."""
        return self._exchange(x, total, gather=True)

    def _exchange(self, x: Tensor, total: int, gather: bool) -> Tensor:
        x, width = x.contiguous(), x.shape[-1]
        if total * x.itemsize > self.buffer:
            raise ValueError(f"a row of {total:,} values is more than ranks send at once: {self.buffer:,} bytes")
        out = x if gather and self.rank else torch.empty(*x.shape[:-1], total, dtype=x.dtype)
        places = None if out is x else out.data_ptr(), x.data_ptr(), self.address
        sizes = self.rank, self.ranks, self.lane, self.buffers, self.buffer, width, total, int(1e9 * self.patience)
        run(held.Exchange(part_of(x.numel() // width, x), *places, *sizes, gather), 1)
        return out
