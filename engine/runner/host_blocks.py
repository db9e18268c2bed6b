"""Host memory for preempted requests and offloaded prefixes: a block there holds what one of the pool has, of all
caches."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from engine.runner.launched_step import to_device

Pairs = Sequence[tuple[int, int]]
PIECE = 256 << 20  # bytes of pinned memory taken at a time: torch takes the next power of two of what is asked for
STAGED = 64 << 20  # bytes of a GPU that copies take at a time, of the reserve that the pool leaves


class HostBlocks(Protocol):
    """Copies are made in the order in which they are asked for, and before any step that is launched after."""

    block_bytes: int

    def out(self, pairs: Pairs) -> None:
        """Each pair's host block, the second, gets what the pool's block, the first, holds."""

    def back(self, pairs: Pairs) -> None:
        """Each pair's block of the pool, the second, gets what the host block, the first, holds."""


class PlainBlocks:
    """Beside a pool that is in host memory itself. NumPy copies whole blocks 3 times as fast as torch's indexing."""

    def __init__(self, caches: Sequence[Tensor], count: int) -> None:
        self._pool = [_by_block(cache).numpy() for cache in caches]
        self._host = [np.empty((count, pool.shape[1]), pool.dtype) for pool in self._pool]  # pages come as written to
        self.block_bytes = sum(pool.shape[1] * pool.itemsize for pool in self._pool)

    def out(self, pairs: Pairs) -> None:
        blocks, hosts = np.array(pairs).T
        for pool, host in zip(self._pool, self._host, strict=True):
            host[hosts] = pool[blocks]

    def back(self, pairs: Pairs) -> None:
        hosts, blocks = np.array(pairs).T
        for pool, host in zip(self._pool, self._host, strict=True):
            pool[blocks] = host[hosts]


class PinnedBlocks:
    """Beside a GPU's pool. All layers of the blocks are gathered on the GPU, in parts that take about so many bytes
    `staged` there, and cross in one copy for each run of neighbours in host memory, which is taken in pieces of about
    so many bytes. The host waits for none of it: what follows on the stream is done after."""

    def __init__(self, caches: Sequence[Tensor], count: int, piece: int = PIECE, staged: int = STAGED) -> None:
        self._pool = [_by_block(cache) for cache in caches]
        self._ends = [0, *accumulate(pool.shape[1] for pool in self._pool)]
        self._device = self._pool[0].device
        self.block_bytes = self._ends[-1]
        self._each = max(1, piece // self.block_bytes)  # blocks of a piece
        self._part = max(1, staged // (2 * self.block_bytes))  # blocks of a part: by layer, and side by side
        pinned = self._device.type == "cuda"
        self._host = [
            torch.empty(min(self._each, count - first), self.block_bytes, dtype=torch.uint8, pin_memory=pinned)
            for first in range(0, count, self._each)
        ]

    def out(self, pairs: Pairs) -> None:
        for part in self._parts(sorted(pairs, key=lambda pair: pair[1])):
            places = to_device([block for block, _ in part], self._device)
            staged = torch.cat([pool.index_select(0, places) for pool in self._pool], 1)
            for there, at, count in _runs([host for _, host in part], self._each):
                self._run(there, count).copy_(staged[at : at + count], non_blocking=True)
            del staged  # before the next part's are taken

    def back(self, pairs: Pairs) -> None:
        for part in self._parts(sorted(pairs)):
            staged = torch.empty(len(part), self._ends[-1], dtype=torch.uint8, device=self._device)
            for there, at, count in _runs([host for host, _ in part], self._each):
                staged[at : at + count].copy_(self._run(there, count), non_blocking=True)
            places = to_device([block for _, block in part], self._device)
            for pool, (begin, end) in zip(self._pool, pairwise(self._ends), strict=True):
                pool.index_copy_(0, places, staged[:, begin:end])
            del staged

    def _parts(self, pairs: Pairs) -> Iterator[Pairs]:
        return (pairs[at : at + self._part] for at in range(0, len(pairs), self._part))

    def _run(self, first: int, count: int) -> Tensor:
        """Neighbouring host blocks, all of one piece."""
        piece, at = divmod(first, self._each)
        return self._host[piece][at : at + count]


def _by_block(cache: Tensor) -> Tensor:
    """The bytes `[blocks, bytes]` of a cache whose blocks lie one after another, however each is laid out."""
    size = cache[0].numel()
    assert cache.stride(0) == size, "a block's values lie together"
    return cache.as_strided((len(cache), size), (size, 1), cache.storage_offset()).view(torch.uint8)


def _runs(numbers: Sequence[int], each: int) -> Iterator[tuple[int, int, int]]:
    """Ascending numbers as runs of neighbours, none of them beyond a multiple of `each`: the first number, its place
    and how many they are."""
    begin = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1 or numbers[end] % each == 0:
            yield numbers[begin], begin, end - begin
            begin = end
