"""The KV pool at any step of a trace: keyframes, and the records from the nearest one on. No Qt in here.

Of the keyframes one in `WHOLE` holds every block, the others those that changed since the one before. They are
compressed: an hour of 360,000 steps over 65,536 blocks takes tens of megabytes.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.inside.kv_map.state import FIELDS, FREE, KvState, Requests
from app.inside.kv_map.tables import keys_of
from engine.trace import Array, Column, Header, Record, Step, Submitted

EVERY = 128  # steps from one keyframe to the next
WHOLE = 32  # keyframes from one whole one to the next


@dataclass(frozen=True, slots=True)
class _Keyframe:
    """`changed`: blocks that differ from the keyframe before, None for all; `fields`: their state, field after field.
    `samples` [4, tables]: key, computed, slot, over; `entries` [2, ...]: of blocks that show another owner, the table
    (counted in order of admission) and the block. `swapped` and `back` are the state's, by sample;
    `kept`: the blocks of host memory whose prefixes differ from those of the keyframe before, and these."""

    changed: bytes | None
    fields: bytes
    samples: bytes
    entries: bytes
    swapped: dict[int, int]
    back: dict[int, Array]
    kept: bytes


def _packed(values: Array) -> bytes:
    return zlib.compress(values.tobytes(), 1)


def _unpacked(data: bytes, dtype: type[np.generic]) -> Array:
    return np.frombuffer(zlib.decompress(data), dtype)


class KvHistory:
    """Feed it the records in order. `tip` is the state after all of them; None until the header is there. `reach`: how
    many blocks from the pool's first on hold all that any of them tells of.

    A state after a step is that before the next step's record, so that requests which ended with a step have.
    """

    def __init__(self, every: int = EVERY, whole: int = WHOLE) -> None:
        self._every, self._whole = every, whole
        self.header: Header | None = None
        self.tip: KvState | None = None
        self.requests = Requests()
        self.reach = 0
        self._taken = 0
        self._steps = Column(np.int64)  # where in the trace each step is
        self._frames: list[_Keyframe] = []
        self._last: dict[str, Array] = {}  # the blocks of the last keyframe
        self._kept: Array = np.zeros(0, np.int32)  # what host memory kept then
        self._cursor: KvState | None = None

    def __frozen__(self) -> dict[str, Any]:
        """Without what is only there to go on from."""
        return vars(self) | {"_last": {}, "_kept": self._kept[:0], "_cursor": None}

    @property
    def steps(self) -> int:
        return self._steps.count

    def position(self, place: int) -> int:
        """Where in the trace the records end that a state after this step is made of."""
        return int(self._steps.values[place + 1]) if place + 1 < self.steps else self._taken

    def take(self, records: Sequence[Record]) -> None:
        """The next records of the trace."""
        for record in records:
            if isinstance(record, Step):
                if self.tip is not None and self.steps % self._every == 0:
                    self._keep(self.tip)
                self._steps.append(self._taken)
                if len(record.block):
                    self.reach = max(self.reach, int(record.block.max()) + 1)
            elif isinstance(record, Submitted):
                self.requests.feed(record, self._taken)
            elif isinstance(record, Header):
                self.header, self.requests = record, Requests(record.model.context)
                self.tip = KvState(record, self.requests)
            if self.tip is not None:
                self.tip.feed(record)
            self._taken += 1

    def at(self, place: int, records: Sequence[Record]) -> KvState:
        """The state after the step of this place, from the trace's records; -1: before the first step.

        It is good until the next call. Going on a little costs O(the steps between), any other move a keyframe and at
        most `EVERY` steps.
        """
        assert self.tip is not None, "the trace has no header yet"
        if place >= self.tip.at:
            return self.tip
        frame = max(place, 0) // self._every
        state = self._cursor
        if state is None or not frame * self._every - 1 <= state.at <= place:
            state = self._cursor = self._restored(frame)
        begin, end = int(self._steps.values[state.at + 1]), self.position(place)
        if state.at < place:
            for record in records[begin:end]:
                state.feed(record)
        return state

    # -- keyframes ------------------------------------------------------------------------------------------------

    def _keep(self, state: KvState) -> None:
        now = {name: getattr(state, name) for name in FIELDS}
        changed = None
        if len(self._frames) % self._whole:
            differs = np.zeros(state.blocks, np.bool_)
            for name, values in now.items():
                differs |= values != self._last[name]
            changed = np.flatnonzero(differs).astype(np.int32)
        part = slice(None) if changed is None else changed
        fields = b"".join(values[part].tobytes() for values in now.values())
        tables = state.tables
        live = tables.live
        samples = np.stack([tables.key[live], tables.computed[live], tables.slot[live], tables.over[live]])
        owner, block = tables.flat()
        beside = np.flatnonzero(keys_of(state.owner[block], state.branch[block]) != tables.key[owner])
        entries = np.stack([np.searchsorted(live, owner[beside]), block[beside]]).astype(np.int32)
        which = None if changed is None else _packed(changed)
        packed = (zlib.compress(fields, 1), _packed(samples.astype(np.int64)), _packed(entries))
        before = np.full(state.hosts, FREE, np.int32) if changed is None else self._kept
        hosts = np.flatnonzero(state.kept != before).astype(np.int32)
        kept, self._kept = _packed(np.stack([hosts, state.kept[hosts]])), state.kept.copy()
        self._frames.append(_Keyframe(which, *packed, dict(state.swapped), dict(state.back), kept))
        if changed is None:
            self._last = {name: np.empty_like(values) for name, values in now.items()}
        for name, values in now.items():
            self._last[name][part] = values[part]

    def _restored(self, number: int) -> KvState:
        """The state of a keyframe."""
        assert self.header is not None
        state = KvState(self.header, self.requests)
        for frame in self._frames[number - number % self._whole : number + 1]:
            changed = slice(None) if frame.changed is None else _unpacked(frame.changed, np.int32)
            fields, begin = zlib.decompress(frame.fields), 0
            for name in FIELDS:
                field = getattr(state, name)
                field[changed] = values = np.frombuffer(fields, field.dtype, len(field[changed]), begin)
                begin += values.nbytes
            hosts, writers = _unpacked(frame.kept, np.int32).reshape(2, -1)
            state.kept[hosts] = writers
        state.at = number * self._every - 1
        state.swapped, state.back = dict(self._frames[number].swapped), dict(self._frames[number].back)
        samples = _unpacked(self._frames[number].samples, np.int64).reshape(4, -1)
        entries = _unpacked(self._frames[number].entries, np.int32).reshape(2, -1)
        _open_tables(state, samples, entries)
        return state


def _open_tables(state: KvState, samples: Array, entries: Array) -> None:
    """Fills the tables: a block is in that of the owner it shows, at its place, and in those of `entries`."""
    keys = samples[0]
    order = np.argsort(keys)
    owned = np.flatnonzero(state.references > 0)
    shown = owned
    if len(owned):
        shown = order[np.searchsorted(keys[order], keys_of(state.owner[owned], state.branch[owned]))]
    table, block = np.concatenate([shown, entries[0]]), np.concatenate([owned, entries[1]])
    by_place = np.lexsort((state.place[block], table))
    borders = np.searchsorted(table[by_place], np.arange(len(keys) + 1))
    tables = state.tables
    for i, key in enumerate(keys.tolist()):
        own = block[by_place[borders[i] : borders[i + 1]]]
        tables.extend(key, own, int(state.place[own[-1]]))
    live = tables.live
    tables.computed[live], tables.slot[live], tables.over[live] = samples[1], samples[2], samples[3]
