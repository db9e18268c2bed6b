"""The KV pool as a trace's records tell it: who owns each block, how full it is, what happened to it. No Qt in here.

Feeding a step costs O(its rows + its block events): a decode row touches one block.
"""

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np

from app.inside.columns import Columns, Numbers
from app.inside.kv_map.tables import ALL, SAMPLES, BlockTables, keys_of
from engine.trace import Array, BlockEvent, Ended, Header, Kind, Record, Step, Submitted, SwapEvent

FREE, CACHED = -1, -2  # in place of an owner
FIELDS = ("owner", "branch", "references", "filled", "place", "since", "writer", "writer_branch", "event", "event_at")


class Mark(IntEnum):
    """What last happened to a block that is worth a look. SHARED: a prefix hit, or another sample or beam of
    the same prompt. COPIED: written by copy-on-write. EVICTED: a cached prefix was forgotten to make room. FOUND: its
    prefix came back from host memory."""

    NONE = 0
    SHARED = 1
    COPIED = 2
    EVICTED = 3
    FOUND = 4


@dataclass(frozen=True, slots=True)
class Kinds:
    """Owned tokens: used; still reachable under max_tokens; held and never reachable."""

    used: int
    reserved: int
    internal: int


class Requests(Columns):
    """What the state must know of requests, by id: `reach`, the tokens whose K and V a sample can ever hold, and
    `position` of the `Submitted` record in the trace; -1 where nothing is known."""

    reach, position = Numbers(np.int64), Numbers(np.int64)

    def __init__(self, context: int = 0) -> None:
        super().__init__()
        self.extend(1, -1, -1)  # the first is asked for in place of nobody
        self._context = context

    def feed(self, record: Submitted, position: int) -> None:
        """The newest of the tokens is never computed: prompt + limit - 1, as the engine's intake sets the limit."""
        request, length, limit = record.request, len(record.token_ids), record.params.max_tokens
        if self._context:
            limit = min(limit, self._context - length)
        self.grow_to(request + 1, -1, -1)
        self.reach[request], self.position[request] = length + limit - 1, position


class KvState:
    """The pool after the step of place `at`; -1 before the first.

    By block: `owner` (request, FREE or CACHED; of several the first admitted) and its `branch`; `references`; `filled`
    tokens; `place` in its owners' tables, the same in all; `since`, the place of the step that told of its present
    owner or state; `writer` and `writer_branch`, the sample that first took it, whose tokens are in it; `event`
    (`Mark`) and `event_at`, the place of its step. A record made while the next step is in flight tells of the blocks
    which that one took: they are owned, and empty until its rows come.

    `hosts`: blocks of host memory; `swapped`: how many of them each sample has; `back`: blocks that came back, of
    samples that had no row since. `offloads`: prefixes may be kept there; `kept` [hosts]: whose prefix lies there, the
    request that computed it, CACHED where nobody told, FREE where there is none. `state_slots` may hold states of
    `state_bytes` each; none where no layer keeps one.
    """

    def __init__(self, header: Header, requests: Requests) -> None:
        """The empty pool of a trace."""
        self.blocks, self.size, self.padded = header.blocks, header.config.block_size, not header.config.paged
        sinks = header.config.sink_tokens // self.size if header.config.kv_window is not None else ALL
        self.state_bytes = header.model.state_bytes
        self.state_slots = header.config.slots if self.state_bytes else 0
        self.at, self.requests, self.tables = -1, requests, BlockTables(sinks)
        unknown = np.full((5, self.blocks), -1, np.int32)
        self.owner, self.place, self.since, self.writer, self.event_at = unknown  # FREE, too, is -1
        self.branch, self.references, self.filled, self.writer_branch = np.zeros((4, self.blocks), np.int32)
        self.event = np.zeros(self.blocks, np.uint8)
        self.hosts, self.swapped = header.host_blocks, dict[int, int]()
        self.back: dict[int, Array] = {}
        self.offloads, self.kept = header.config.offload_prefixes, np.full(self.hosts, FREE, np.int32)

    def feed(self, record: Record) -> None:
        """The next record of the trace; those of other kinds change nothing."""
        if isinstance(record, Step):
            self.at += 1
            keys = keys_of(record.request, record.branch)
            if len(record.swap_event):  # what was offloaded is told beside who has its block now
                self._keep(record)
            if len(record.block):
                self._change(record, keys)
            if len(record.swap_event):
                self._swap(record)
            if len(record.copied_to):
                self.event[record.copied_to] = Mark.COPIED
                self.event_at[record.copied_to] = self.at
            if len(keys):
                self._compute(record, keys)
        elif isinstance(record, Ended):
            handle = self.tables.handle(record.request * SAMPLES + record.branch)
            if handle >= 0:
                self.tables.over[handle] = True

    # -- questions ------------------------------------------------------------------------------------------------

    def owners(self, block: int) -> list[tuple[int, int]]:
        """(request, branch) of each, the first admitted first."""
        if self.references[block] == 0:
            return []
        keys = [int(self.tables.key[h]) for h in self.tables.owners(block, int(self.place[block]))]
        return [divmod(key, SAMPLES) for key in keys]

    def samples(self, request: int) -> dict[int, Array]:
        """A request's block tables by branch, those that have blocks; empty where none has."""
        tables = self.tables
        handles = tables.live
        own = handles[tables.key[handles] // SAMPLES == request]
        found = {int(tables.key[h]) % SAMPLES: tables.table(int(h)).copy() for h in own}
        return dict(sorted(found.items()))

    def kinds(self) -> Kinds:
        """The owned tokens by kind. In a padded mode, nothing that a finished row holds is of use. Costs O(blocks)."""
        tables, owned = self.tables, self.references > 0
        useful = owned.copy()
        for handle in tables.live.tolist() if self.padded else ():
            if tables.over[handle]:
                useful[tables.table(handle)] = False
        used = int(self.filled[useful].sum())
        reach = self.requests.reach[np.maximum(self.owner, 0)]
        room = np.minimum(self.size, reach - self.place.astype(np.int64) * self.size) - self.filled
        reserved = int(np.maximum(room, 0)[useful].sum())
        return Kinds(used, reserved, int(owned.sum()) * self.size - used - reserved)

    # -- what happened to blocks ----------------------------------------------------------------------------------

    def _change(self, step: Step, rows: Array) -> None:
        """All events in their order: those of one kind at a time, and of one owner where several may meet a block."""
        event, block = step.block_event, step.block
        keys = keys_of(step.block_request, step.block_branch)
        other = keys[1:] != keys[:-1]
        meets = (event[1:] == BlockEvent.SHARED) | (event[1:] == BlockEvent.LEFT)
        borders = np.flatnonzero((event[1:] != event[:-1]) | (other & meets)) + 1
        changes = np.flatnonzero(other) + 1
        for begin, end in zip([0, *borders.tolist()], [*borders.tolist(), len(event)]):
            blocks, kind, part = block[begin:end], int(event[begin]), slice(begin, end)
            if kind == BlockEvent.LEFT:
                self._leave(blocks, int(keys[begin]), step, rows, int(step.block_place[begin]))
                continue
            if kind == BlockEvent.TAKEN:
                self._take(blocks, step.block_request[part], step.block_branch[part], step.block_place[part])
            elif kind == BlockEvent.SHARED:
                self._share(blocks, int(keys[begin]), step.block_place[part])
            else:
                self._give_back(blocks, kind == BlockEvent.KEPT)
            low, high = np.searchsorted(changes, (begin + 1, end))
            cuts = [begin, *changes[low:high].tolist(), end]
            for first, last in pairwise(cuts):  # each a run of one owner's events
                if kind in (BlockEvent.TAKEN, BlockEvent.SHARED):
                    self.tables.extend(int(keys[first]), block[first:last], int(step.block_place[last - 1]))
                elif keys[first] >= 0:
                    self.tables.shorten(int(keys[first]), block[first:last], int(step.block_place[first]))

    def _take(self, blocks: Array, request: Array, branch: Array, place: Array) -> None:
        evicted = blocks[self.owner[blocks] == CACHED]
        if len(evicted):
            self.event[evicted], self.event_at[evicted] = Mark.EVICTED, self.at
        self.owner[blocks] = self.writer[blocks] = request
        self.branch[blocks] = self.writer_branch[blocks] = branch
        self.references[blocks] = 1
        self.filled[blocks] = 0
        self.place[blocks] = place
        self.since[blocks] = self.at

    def _share(self, blocks: Array, key: int, place: Array) -> None:
        alone = blocks[self.references[blocks] == 0]
        self.owner[alone], self.branch[alone] = divmod(key, SAMPLES)
        self.since[alone] = self.at
        self.references[blocks] += 1
        self.place[blocks] = place  # of one that was kept before the trace was joined, nothing was told
        self.event[blocks], self.event_at[blocks] = Mark.SHARED, self.at

    def _leave(self, blocks: Array, key: int, step: Step, rows: Array, first: int) -> None:
        """One owner goes, others stay. What it wrote in this very step is in the block."""
        wrote = np.flatnonzero((rows == key) & (step.kind != Kind.HELD))
        if len(wrote):
            end = int(step.first[wrote[-1]] + step.stays[wrote[-1]])
            self.filled[blocks] = np.maximum(self.filled[blocks], self._part(end, self.place[blocks]))
        self.references[blocks] -= 1
        self.tables.shorten(key, blocks, first)
        request, branch = divmod(key, SAMPLES)
        shown = (self.owner[blocks] == request) & (self.branch[blocks] == branch)
        for block in blocks[shown].tolist():
            heirs = self.tables.owners(block, int(self.place[block]))
            if heirs:
                self.owner[block], self.branch[block] = divmod(int(self.tables.key[heirs[0]]), SAMPLES)

    def _give_back(self, blocks: Array, kept: bool) -> None:
        self.references[blocks] = 0
        self.branch[blocks] = 0
        self.since[blocks] = self.at
        if kept:  # only full blocks are kept
            self.owner[blocks], self.filled[blocks] = CACHED, self.size
        else:
            self.owner[blocks], self.filled[blocks], self.place[blocks], self.writer[blocks] = FREE, 0, -1, -1

    def _keep(self, step: Step) -> None:
        """Which prefixes lie in host memory from now on."""
        for event, host, block in zip(step.swap_event.tolist(), step.swap_host.tolist(), step.swap_block.tolist()):
            if event == SwapEvent.OFFLOADED:
                self.kept[host] = self.writer[block] if block >= 0 and self.writer[block] >= 0 else CACHED
            elif event == SwapEvent.FORGOTTEN:
                self.kept[host] = FREE

    def _swap(self, step: Step) -> None:
        """What comes back is seen with the sample's next row, which says how much of the last block is filled."""
        keys = keys_of(step.swap_request, step.swap_branch)
        found = step.swap_block[step.swap_event == SwapEvent.FOUND]
        found = found[self.references[found] > 0]  # of a step that failed its blocks went back
        self.filled[found] = self.size
        self.event[found], self.event_at[found] = Mark.FOUND, self.at
        of = step.swap_event < SwapEvent.OFFLOADED
        keys = keys[of]
        for key in np.unique(keys).tolist():
            event, block = step.swap_event[of][keys == key], step.swap_block[of][keys == key]
            out, back = int((event == SwapEvent.OUT).sum()), event == SwapEvent.IN
            left = self.swapped.pop(key, 0) + out - (len(event) - out)
            if left > 0:
                self.swapped[key] = left
            if back.any():
                self.back[key] = block[back]
            else:
                self.back.pop(key, None)

    def _fill_back(self, handle: int, first: int, blocks: Array) -> None:
        """Of a row at `first`. Where that is before them, what they follow is computed again."""
        table = self.tables.table(handle)
        index = np.flatnonzero(np.isin(table, blocks))
        if len(index):
            place = self.tables.places(handle)[index]
            before = first <= int(place[0]) * self.size
            self.filled[table[index]] = self.size if before else self._part(first, place)

    # -- what was computed ----------------------------------------------------------------------------------------

    def _part(self, end: int, place: Array) -> Array:
        """Tokens in the blocks of these places, of a sample of which `end` tokens are computed."""
        return np.clip(end - place.astype(np.int64) * self.size, 0, self.size)

    def _compute(self, step: Step, keys: Array) -> None:
        """A sample that gave its blocks back in this record has no table any more, and nothing is left to fill."""
        tables = self.tables
        handles = tables.find(keys)
        held = step.kind == Kind.HELD
        if held.any():
            tables.over[handles[held & (handles >= 0)]] = True
        under_way = (step.count == 0) & (step.beside > 0)  # a prefill worker's: nothing is known to be written
        rows = np.flatnonzero((handles >= 0) & ~held & ~under_way)
        if not len(rows):
            return
        handles, first, count = handles[rows], step.first[rows].astype(np.int64), step.stays[rows]
        tables.computed[handles] = first + count
        tables.slot[handles] = step.slot[rows]
        if self.back:
            for i in np.flatnonzero(np.isin(keys[rows], list(self.back))).tolist():
                self._fill_back(int(handles[i]), int(first[i]), self.back.pop(int(keys[rows[i]])))
        single = count == 1
        place = first // self.size
        index = tables.index(handles, place)
        within = single & (index < tables.length[handles])
        blocks = tables.at(handles[within], index[within])
        self.filled[blocks] = first[within] + 1 - place[within] * self.size
        for i in np.flatnonzero(~single).tolist():
            handle, begin, end = int(handles[i]), int(place[i]), int(first[i] + count[i])
            if not count[i]:  # it only tells how far the sample is
                begin = 0
            places = tables.places(handle)
            written = (places >= begin) & (places < -(-end // self.size))
            self.filled[tables.table(handle)[written]] = self._part(end, places[written])
