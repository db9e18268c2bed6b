"""The KV pool's blocks: which are free and which are owned. Identity only; the tensors are the runner's."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-tokens // block_size)


class BlockPool:
    """`total` blocks of `block_size` tokens. Invariant: free + owned = total, and a free block has no references.

    The lowest free numbers are given first, so that the blocks in use stay near the pool's beginning: the CPU path
    reads one contiguous range that covers them.
    """

    def __init__(self, total: int, block_size: int) -> None:
        self.total, self.block_size = total, block_size
        self._free = list(range(total))
        self._references = [0] * total

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def owned(self) -> int:
        return self.total - len(self._free)

    def references(self, block: int) -> int:
        return self._references[block]

    def take(self, count: int) -> list[int]:
        """`count` blocks with one reference each. The caller has checked that there are enough."""
        assert count <= len(self._free), f"{count} blocks asked of {len(self._free)} free"
        blocks = [heapq.heappop(self._free) for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
        return blocks

    def release(self, blocks: Iterable[int]) -> list[int]:
        """Gives back one reference to each; returns those that are free now."""
        freed = []
        for block in blocks:
            assert self._references[block] > 0, f"block {block} released twice"
            self._references[block] -= 1
            if self._references[block] == 0:
                heapq.heappush(self._free, block)
                freed.append(block)
        return freed
