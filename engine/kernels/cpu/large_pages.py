"""Memory in pages of 2 MiB instead of 4 KiB, where the system gives them to who asks.

All weights pass through the processor at every step, and where each page of them lies is looked up on the way: in a
virtual machine twice. On two cores of an AMD EPYC, the products of a step of 33.6 M weights took 3.1 ms so in place of
3.6 in float32 and 1.9 in place of 2.5 in bfloat16 at one row, and a twentieth less at 64.
"""

import contextlib
import math
import mmap
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

CHUNK = 64 << 20  # bytes; what nobody touches of one takes no memory
LINE = 64  # bytes; where a tensor begins


class LargePages:
    """Tensors of a CPU that lie side by side, for as long as any of them is held."""

    def __init__(self, chunk: int = CHUNK) -> None:
        self._chunk, self._at = chunk, 0
        self._memory: mmap.mmap | None = None

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        size = math.prod(shape) * dtype.itemsize
        if sys.platform != "linux" or not size:
            return torch.zeros(*shape, dtype=dtype)
        if self._memory is None or self._at + size > len(self._memory):
            self._memory, self._at = mmap.mmap(-1, max(size, self._chunk), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), 0
            with contextlib.suppress(OSError):  # a system that has none
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        begin, self._at = self._at, -(-(self._at + size) // LINE) * LINE
        return torch.frombuffer(self._memory, dtype=dtype, count=math.prod(shape), offset=begin).view(*shape)


def zeros_in_large_pages(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """One by itself."""
    return LargePages(0).zeros(shape, dtype)
