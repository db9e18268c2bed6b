"""The KV pool's blocks: which are free, owned or kept for their prefix. Identity only; the tensors are the runner's."""

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import count

from engine.trace.records import BlockEvent

Prefix = tuple[int, ...]
Key = tuple[int, Prefix]  # the serial before, and the tokens after it
Evicted = tuple[int, Key, int]  # a block, what it answered for, and the serial of that
ROOT = 0  # the serial before a prompt's first block


def root_of(adapter: int) -> int:
    """That of prompts that go through an adapter, numbered from 1, whose K and V are others; of 0 `ROOT`."""
    return ROOT - adapter


def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-tokens // block_size)


class BlockPool:
    """`total` blocks of `block_size` tokens. Invariant: free + cached + owned = total; only owned ones are referenced.

    A full block may be published: it then answers for its tokens after those of the published block before it, of
    which it knows the serial. When its last owner leaves, it stays as cached until it is the least recently used one
    and room is needed. Looking a block up compares its tokens, so no two prefixes are ever mistaken for each other.
    The pool belongs to one load of one model, and so does every serial.

    The lowest free numbers are given first, so that the blocks in use stay near the pool's beginning: the CPU path
    reads one contiguous range that covers them.

    What has a serial in the pool `below` has the same one here.
    """

    def __init__(self, total: int, block_size: int) -> None:
        self.total, self.block_size = total, block_size
        self._free = list(range(total))
        self._references = [0] * total
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._published: dict[Key, tuple[int, int]] = {}  # the block, and the serial
        self._key: dict[int, Key] = {}  # of each published block
        self._serials = count(ROOT + 1)
        self.below: BlockPool | None = None

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def cached(self) -> int:
        return len(self._cached)

    @property
    def available(self) -> int:
        """Blocks that `take` can give: the free ones, and the cached ones at the price of their prefixes."""
        return len(self._free) + len(self._cached)

    @property
    def owned(self) -> int:
        return self.total - self.available

    def references(self, block: int) -> int:
        return self._references[block]

    def is_cached(self, block: int) -> bool:
        return block in self._cached

    def take(self, count: int, evicted: list[Evicted] | None = None) -> list[int]:
        """`count` blocks with one reference each. The caller has checked that there are enough. `evicted` hears of the
        cached ones among them, in the order in which they are forgotten."""
        assert count <= self.available, f"{count} blocks asked of {self.available} available"
        blocks = []
        for _ in range(count):
            if self._free:
                block = heapq.heappop(self._free)
            else:
                block, _ = self._cached.popitem(last=False)
                if evicted is not None:
                    key = self._key[block]
                    evicted.append((block, key, self._published[key][1]))
                self._forget(block)
            self._references[block] = 1
            blocks.append(block)
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """One more reference to each, owned or cached."""
        for block in blocks:
            assert self._references[block] > 0 or block in self._cached, f"block {block} is free"
            self._cached.pop(block, None)
            self._references[block] += 1

    def release(self, blocks: Sequence[int]) -> list[BlockEvent]:
        """Gives back one reference to each, one after another; returns what became of each: LEFT, KEPT or FREED."""
        events = []
        for block in blocks:
            assert self._references[block] > 0, f"block {block} released twice"
            self._references[block] -= 1
            if self._references[block]:
                events.append(BlockEvent.LEFT)
            elif block in self._key:
                self._cached[block] = None
                events.append(BlockEvent.KEPT)
            else:
                heapq.heappush(self._free, block)
                events.append(BlockEvent.FREED)
        return events

    # Prefixes.

    def match(self, tokens: Sequence[int], root: int = ROOT) -> tuple[list[int], int]:
        """The published blocks that hold the longest beginning of `tokens`, and the serial of the last, or `root`: what
        prompts of different roots begin with is never taken for the same."""
        blocks, serial, size = [], root, self.block_size
        for at in range(0, len(tokens) - size + 1, size):
            found = self._published.get((serial, tuple(tokens[at : at + size])))
            if found is None:
                break
            block, serial = found
            blocks.append(block)
        return blocks, serial

    def match_below(self, tokens: Sequence[int], root: int = ROOT) -> tuple[list[int], list[int]]:
        """`match`, and which blocks of the pool below hold what follows."""
        blocks, serial = self.match(tokens, root)
        if self.below is None:
            return blocks, []
        return blocks, self.below.match(tokens[len(blocks) * self.block_size :], serial)[0]

    def answers(self, block: int) -> bool:
        """Whether it is published."""
        return block in self._key

    def touch(self, key: Key) -> bool:
        """Whether a block answers for it, which then is the last to be forgotten of those that are cached."""
        if key not in self._published:
            return False
        block, _ = self._published[key]
        if block in self._cached:
            self._cached.move_to_end(block)
        return True

    def answer(self, block: int, key: Key, serial: int) -> None:
        """Publishes an owned block for what one of the pool above answered for."""
        self._published[key] = block, serial
        self._key[block] = key

    def publish(self, block: int, serial: int, tokens: Sequence[int]) -> int:
        """Makes an owned, full block findable after the prefix of `serial`; returns the serial of the longer prefix.
        Where another block has the same content already, that one keeps answering for it. One that was published after
        the same prefix of another serial, which is gone, is found after this one from now on."""
        key = serial, tuple(tokens)
        if key not in self._published:
            if block in self._key:
                self._forget(block)
            there = None if self.below is None else self.below._published.get(key)
            self.answer(block, key, next(self._serials) if there is None else there[1])
        return self._published[key][1]

    def withdraw(self, blocks: Iterable[int]) -> list[int]:
        """Unpublishes blocks whose content was never written. Cached ones among them become free; returns these."""
        freed = []
        for block in blocks:
            if block in self._key:
                self._forget(block)
            if block in self._cached:
                del self._cached[block]
                heapq.heappush(self._free, block)
                freed.append(block)
        return freed

    def _forget(self, block: int) -> None:
        del self._published[self._key.pop(block)]
