"""The memory of a pretend GPU, and the host's pinned memory: who owns what, and how much there is."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import torch
from torch import Tensor

ROUND = 512  # bytes, to a multiple of which torch's allocator rounds
JUNK = 0x7F  # of each byte that nobody has written: as integers far out of any range, as bfloat16 and floats huge


class Pool:
    """Memory that captured graphs share: what one computes in may lie where another does."""

    def __init__(self) -> None:
        self.live = self.most = 0
        self.pieces: list[tuple[weakref.ref[Memory], np.ndarray]] = []


class Memory:
    """A piece of a card's memory. Whoever holds it owns it: once nobody does it may be anybody's, and what still names
    its address reads what others wrote. `held` are its bytes, on the host; `taken_by` is the graph in whose capture it
    was taken."""

    def __init__(self, card: Card, size: int, pool: Pool | None = None, taken_by: object = None) -> None:
        self.card, self.pool = card, pool
        self.taken_by = None if taken_by is None else weakref.ref(taken_by)
        self.held = np.full(max(size, 1), JUNK, np.uint8)

    @property
    def address(self) -> int:
        return self.held.ctypes.data


class Card:
    """What of a GPU's `total` bytes is taken."""

    def __init__(self, index: int, total: int) -> None:
        self.index, self.total, self.fraction = index, total, 1.0
        self.allocated = self.reserved = self.most_allocated = self.most_reserved = 0
        self._pools: weakref.WeakSet[Pool] = weakref.WeakSet()
        self._lock = threading.RLock()

    def take(self, size: int, pool: Pool | None = None, taken_by: object = None) -> Memory:
        """Raises torch.OutOfMemoryError where there is no room."""
        rounded = -(-max(size, 1) // ROUND) * ROUND
        with self._lock:
            free = int(self.total * self.fraction) - self._held
            if rounded > free:
                raise torch.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {size / 1048576:.2f} MiB. GPU {self.index} has a total "
                    f"capacity of {self.total / 1048576:.2f} MiB of which {free / 1048576:.2f} MiB is free."
                )
            self._count(rounded, pool)
        memory = Memory(self, size, pool, taken_by)
        if pool is not None:
            pool.pieces.append((weakref.ref(memory), memory.held))
        weakref.finalize(memory, self._count, -rounded, pool).atexit = False
        return memory

    @property
    def _held(self) -> int:
        """Bytes that no other may take: those that are live, and what pools of graphs keep beside."""
        return self.allocated + sum(pool.most - pool.live for pool in self._pools)

    def _count(self, size: int, pool: Pool | None) -> None:
        with self._lock:
            self.allocated += size
            if pool is not None:
                self._pools.add(pool)
                pool.live += size
                pool.most = max(pool.most, pool.live)
            self.reserved = max(self.reserved, self._held)
            self.most_allocated = max(self.most_allocated, self.allocated)
            self.most_reserved = max(self.most_reserved, self.reserved)

    def empty_cache(self) -> None:
        with self._lock:
            self.reserved = self._held

    def forget_most(self) -> None:
        self.most_allocated, self.most_reserved = self.allocated, self.reserved


class Pinned:
    """The host's pinned memory, by address."""

    def __init__(self) -> None:
        self._by_address: dict[int, int] = {}

    def empty(self, size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count = int(np.prod(size, dtype=np.int64)) * dtype.itemsize
        array = np.full(max(1, count), JUNK, np.uint8)
        address = array.ctypes.data
        self._by_address[address] = array.nbytes
        weakref.finalize(array, self._by_address.pop, address, None).atexit = False
        return as_tensor(array, size, contiguous(size), dtype)

    def holds(self, tensor: Tensor) -> bool:
        return tensor.numel() == 0 or tensor.untyped_storage().data_ptr() in self._by_address


def contiguous(size: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor of that size whose last dimension lies together."""
    strides, step = [], 1
    for length in reversed(size):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def as_tensor(held: np.ndarray, size: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The bytes as a tensor of the host's, which keeps them."""
    with torch.inference_mode(False), torch.no_grad():
        flat = torch.from_numpy(held)
        flat = flat[: len(held) // dtype.itemsize * dtype.itemsize].view(dtype)
        return flat.as_strided(size, strides)
