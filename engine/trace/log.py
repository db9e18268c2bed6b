"""The records of one trace, hours of them: the newest as objects, older ones packed and unpacked when they are read."""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, overload

import numpy as np

from engine.trace.packing import Packing, Unpacked
from engine.trace.records import Header, Kind, Record, Step

KEPT = 8_192  # records as objects: the last 40 seconds at 100 steps a second
CHUNK = 128  # records that are packed together
CACHED = 16  # chunks that stay unpacked, for readers that go on where they were
COLUMNS = ("times", "step_places", "step_begins", "step_ends", "step_running", "step_kv")


def time_of(record: Record) -> float:
    """When a record was made, in seconds from the trace's start."""
    match record:
        case Step():
            return record.ended
        case Header():
            return 0.0
        case _:
            return record.time


@dataclass(frozen=True, slots=True)
class _State:
    """Records `[first, begin)` are in `chunks`, those from `begin` on in `kept`, `CHUNK` in each. Readers take one
    state and read it while the next is made: lists only grow."""

    first: int
    chunks: list[bytes]
    begin: int
    kept: list[list[Record]]

    def slice(self, begin: int, end: int) -> list[Record]:
        """The records `[begin, end)` of those that are kept."""
        begin, end = max(begin - self.begin, 0), max(end - self.begin, 0)
        found: list[Record] = []
        while begin < end:
            number, at = divmod(begin, CHUNK)
            found += self.kept[number][at : at + end - begin]
            begin += CHUNK - at
        return found


class Log(Sequence[Record]):
    """Append-only. One thread appends; any thread reads by index, up to the length that it was told.

    The newest `kept` records are objects. Each append beyond does a piece of the packing, so that none takes long;
    what was packed is equal when it is read again, but not the same object. Slices are lists. Reading is O(1): an old
    record costs about a millisecond when none near it was read of late, some ten microseconds else.

    Columns that say where to look, so that a search unpacks nothing: `times`, when each record was known, which never
    falls (a record that was made before the one ahead of it counts from that one's time); of each step, `step_places`
    (its index here), `step_begins`, `step_ends`, `step_running` (rows that are not held) and `step_kv` (tokens in the
    cache after it). They are `array`s, for other threads perhaps one record behind. Take slices, which are copies: an
    array that NumPy looks into cannot grow. They begin with the first record that is left: where none was let go,
    `times` has a record's index.
    """

    def __init__(self, records: Iterable[Record] = (), kept: int = KEPT) -> None:
        self.times = array("d")
        self.step_places, self.step_begins, self.step_ends = array("I"), array("d"), array("d")
        self.step_running, self.step_kv = array("I"), array("q")
        self.latest = 0.0  # when the newest record was known, be it here or let go
        self._length = 0
        self._kept = kept
        self._state = _State(0, [], 0, [])
        self._packing: Packing | None = None
        self._cache: OrderedDict[int, Unpacked] = OrderedDict()  # by the index of the first record
        self._cache_lock = Lock()
        for record in records:
            self.append(record)

    # -- the appending thread -------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """One more record. Packs an old one where there are enough."""
        now, place, time = self._state, self._length, time_of(record)
        if now.kept and len(now.kept[-1]) < CHUNK:
            now.kept[-1].append(record)
        else:
            now.kept.append([record])
        self._length += 1  # before the columns, so that what they name can be read
        self.latest = max(time, self.latest) if place else time
        self.times.append(self.latest)
        if isinstance(record, Step):
            self.step_places.append(place)
            self.step_begins.append(record.started)
            self.step_ends.append(record.ended)
            self.step_running.append(int(np.count_nonzero(record.kind != Kind.HELD)))
            self.step_kv.append(record.kv_used)
        if place - now.begin >= self._kept + CHUNK:
            self._pack()

    def _pack(self) -> None:
        """One piece of work on the oldest chunk; there are fewer pieces than records that come in meanwhile."""
        now = self._state
        if self._packing is None:
            self._packing = Packing(now.kept[0])
        for _ in self._packing:
            return
        now.chunks.append(self._packing.packed)
        self._packing = None
        self._state = _State(now.first, now.chunks, now.begin + CHUNK, now.kept[1:])

    def forget(self, end: int, columns: bool = True) -> None:
        """Lets go of the records before `end`, which can no longer be read; all others keep their index. Their part of
        the `columns` goes along: these are made anew, so that who reads the old ones is not disturbed."""
        now = self._state
        if end > now.begin:
            left = now.slice(end, self._length)
            self._state = _State(end, [], end, [left[i : i + CHUNK] for i in range(0, len(left), CHUNK)])
            self._packing = None
            if not columns:
                return
            self.times = self.times[-len(left) :] if left else array("d")
            steps = bisect_left(self.step_places, end)
            self.step_places, self.step_begins = self.step_places[steps:], self.step_begins[steps:]
            self.step_ends, self.step_running = self.step_ends[steps:], self.step_running[steps:]
            self.step_kv = self.step_kv[steps:]

    # -- readers --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> Record: ...

    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...

    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        length, state = self._length, self._state
        if isinstance(at, slice):
            begin, end, step = at.indices(length)
            if step != 1:
                return [self[i] for i in range(begin, end, step)]
            old = [self._unpack(state, i) for i in range(begin, min(end, state.begin))]
            return old + state.slice(begin, end)
        place = at + length if at < 0 else at
        if not 0 <= place < length:
            raise IndexError(f"record {at} of {length}")
        if place >= state.begin:
            number, at = divmod(place - state.begin, CHUNK)
            return state.kept[number][at]
        return self._unpack(state, place)

    def __iter__(self) -> Iterator[Record]:
        place = 0
        while batch := self[place : place + CHUNK]:
            yield from batch
            place += len(batch)

    def _unpack(self, state: _State, place: int) -> Record:
        if place < state.first:
            raise IndexError(f"record {place} was let go; the first that is left is {state.first}")
        number, at = divmod(place - state.first, CHUNK)
        key = state.first + number * CHUNK
        with self._cache_lock:
            chunk = self._cache.get(key)
            if chunk is not None:
                self._cache.move_to_end(key)
        if chunk is None:
            chunk = Unpacked(state.chunks[number])
            with self._cache_lock:
                self._cache[key] = chunk
                while len(self._cache) > CACHED:
                    self._cache.popitem(last=False)
        return chunk[at]

    @property
    def first(self) -> int:
        """The index of the first record that can be read: 0, unless some were let go."""
        return self._state.first

    @property
    def columns(self) -> "dict[str, array[Any]]":
        """The columns by their names."""
        return {name: getattr(self, name) for name in COLUMNS}

    @property
    def packed_bytes(self) -> int:
        """The size of what is packed."""
        return sum(map(len, self._state.chunks))


class WatchedLog(Log):
    """A log's records so far; whenever somebody reads on, `look` is called first, and what it raises ends that."""

    def __init__(self, log: Log, look: Callable[[], None]) -> None:
        self.__dict__.update(log.__dict__)
        self._log, self._look = log, look

    @overload
    def __getitem__(self, at: int) -> Record: ...

    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...

    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        self._look()
        return self._log[at]
