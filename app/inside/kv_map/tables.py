"""The block tables of the samples that hold blocks: logical place to physical block. No Qt in here.

All tables lie in one array, so that the blocks of many rows are found at once. A table that outgrows its room moves to
the array's end; what is left behind is packed away when the array is full.
"""

import numpy as np

from engine.trace import Array

SAMPLES = 64  # of one request at most: a sample's key is request * SAMPLES + branch
ALL = 1 << 30  # sinks of a cache that forgets nothing
_SPARE = 4  # blocks of room that a new table has beyond its first ones


def keys_of(request: Array, branch: Array) -> Array:
    """The keys of samples, int64."""
    return request.astype(np.int64) * SAMPLES + branch


class BlockTables:
    """A sample has a handle from its first block to its last. Handles are in order of admission; they are good until
    the next `extend`.

    Of a cache that forgets, the first `sinks` blocks stay and those after them move up: `gone` by handle is by how many
    places.

    By handle: `key`, `length` (blocks), `computed` (tokens whose K and V are there), `slot` (-1 before its first row),
    `over` (it computes no more).
    """

    def __init__(self, sinks: int = ALL) -> None:
        self.sinks = sinks
        self.count = 0  # handles so far, those of closed tables included
        self.key = np.full(64, -1, np.int64)  # -1: closed
        self._begin, self.length, self._room, self.gone = (np.zeros(64, np.int64) for _ in range(4))
        self.computed, self.slot, self.over = np.zeros(64, np.int64), np.full(64, -1, np.int32), np.zeros(64, np.bool_)
        self._blocks = np.zeros(1024, np.int32)
        self._end = 0
        self._handles: dict[int, int] = {}
        self._sorted: tuple[Array, Array] | None = None

    @property
    def live(self) -> Array:
        """The handles of open tables, in order of admission."""
        return np.flatnonzero(self.key[: self.count] >= 0)

    def handle(self, key: int) -> int:
        """-1 where the sample has no table."""
        return self._handles.get(key, -1)

    def find(self, keys: Array) -> Array:
        """Handles of many samples at once; -1 where there is none."""
        if self._sorted is None:
            handles = self.live
            order = np.argsort(self.key[handles])
            self._sorted = self.key[handles][order], handles[order]
        known, handles = self._sorted
        if not len(known):
            return np.full(len(keys), -1)
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[at] == keys, handles[at], -1)

    def index(self, handles: Array | int, places: Array) -> Array:
        """Where in these tables what is at these places lies."""
        return np.where(places >= self.sinks, places - self.gone[handles], places)

    def places(self, handle: int) -> Array:
        """Of each of its blocks."""
        index = np.arange(self.length[handle])
        return np.where(index >= self.sinks, index + self.gone[handle], index)

    def table(self, handle: int) -> Array:
        """Its blocks in logical order: a view, good until the next change."""
        begin = self._begin[handle]
        return self._blocks[begin : begin + self.length[handle]]

    def at(self, handles: Array, index: Array) -> Array:
        """The blocks that lie there in these tables, which must be within them."""
        return np.asarray(self._blocks[self._begin[handles] + index])

    def owners(self, block: int, place: int) -> list[int]:
        """The handles of those whose table has this block at this place, the first admitted first."""
        handles = self.live
        index = self.index(handles, np.full(len(handles), place))
        there = (index >= 0) & (self.length[handles] > index)
        handles, index = handles[there], index[there]
        return [int(h) for h in handles[self._blocks[self._begin[handles] + index] == block]]

    def flat(self) -> tuple[Array, Array]:
        """Every entry of every table: handles and blocks, table after table."""
        handles = self.live
        lengths = self.length[handles]
        owner = np.repeat(handles, lengths)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return owner, self._blocks[self._begin[owner] + place]

    def extend(self, key: int, blocks: Array, last: int = -1) -> None:
        """These blocks at a table's end, the last of them at that place, where it is told; opens the table where there
        is none."""
        more = len(blocks)
        handle = self._handles.get(key, -1)
        if handle < 0:
            handle = self._open(key, more + _SPARE)
        elif self.length[handle] + more > self._room[handle]:
            self._move(handle, 2 * int(self.length[handle]) + more)
            handle = self._handles[key]
        begin = int(self._begin[handle] + self.length[handle])
        self._blocks[begin : begin + more] = blocks
        self.length[handle] += more
        if self.length[handle] > self.sinks and last >= 0:
            self.gone[handle] = last + 1 - self.length[handle]

    def shorten(self, key: int, blocks: Array, first: int = -1) -> None:
        """Takes these blocks off a table, the first of them from that place: off its end, or out of its middle, where
        they are forgotten. A table without blocks is closed."""
        handle, count = self._handles[key], len(blocks)
        if 0 <= first < self.length[handle] + self.gone[handle] - 1 and self.length[handle] > self.sinks:
            table = self.table(handle)
            kept = table[~np.isin(table, blocks)]
            table[: len(kept)] = kept
            self.gone[handle] += count
        self.length[handle] -= count
        if self.length[handle] <= self.sinks:
            self.gone[handle] = 0
        if self.length[handle] <= 0:
            del self._handles[key]
            self.key[handle] = -1
            self._sorted = None

    def _open(self, key: int, room: int) -> int:
        if self.count == len(self.key) or self._end + room > len(self._blocks):
            self._pack(room)
        handle = self.count
        self.count += 1
        self.key[handle], self._begin[handle], self._room[handle] = key, self._end, room
        self.length[handle], self.computed[handle], self.gone[handle] = 0, 0, 0
        self.slot[handle], self.over[handle] = -1, False
        self._end += room
        self._handles[key] = handle
        self._sorted = None
        return handle

    def _move(self, handle: int, room: int) -> None:
        key = int(self.key[handle])
        if self._end + room > len(self._blocks):
            self._pack(room)
            handle = self._handles[key]
        length, old = int(self.length[handle]), int(self._begin[handle])
        self._blocks[self._end : self._end + length] = self._blocks[old : old + length]
        self._begin[handle], self._room[handle] = self._end, room
        self._end += room

    def _pack(self, spare: int) -> None:
        """Forgets closed tables, and makes room for so many blocks and as many handles as there are."""
        handles = self.live
        length = self.length[handles]
        room = length + _SPARE
        begin = np.cumsum(room) - room
        blocks = np.zeros(2 * int(room.sum()) + spare + 1024, np.int32)
        owner, entries = self.flat()
        order = np.searchsorted(handles, owner)
        blocks[begin[order] + np.arange(len(owner)) - (np.cumsum(length) - length)[order]] = entries
        self.count = len(handles)
        capacity = max(64, 2 * self.count)
        for name in ("key", "length", "gone", "computed", "slot", "over"):
            values = getattr(self, name)
            grown = np.zeros(capacity, values.dtype)
            grown[: self.count] = values[handles]
            setattr(self, name, grown)
        self._begin, self._room = (np.zeros(capacity, np.int64) for _ in range(2))
        self._begin[: self.count], self._room[: self.count] = begin, room
        self._blocks, self._end = blocks, int(room.sum())
        self._handles = dict(zip(self.key[: self.count].tolist(), range(self.count)))
        self._sorted = None
