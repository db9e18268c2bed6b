"""What the KV pool held after each step, by kind, and what another way of keeping K and V would have held. No Qt.

A step costs O(its rows), and about 200 bytes for as long as the trace is; a picture costs O(its pixels + log steps),
whatever its span, since every series is kept with its integral over time.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.language import tr
from engine.trace import Array, BlockEvent, Column, Ended, Header, Kind, KvShares, Presence, Record, Step, Submitted

KINDS = ("used", "reserved", "internal", "external")
KIND_TITLES = {  # with what is left
    "used": tr("used"),
    "reserved": tr("reserved"),
    "internal": tr("internal"),
    "external": tr("external"),
    "free": tr("free"),
}
DRAWN = (*KINDS, "to_limit", "to_context", "paged")
LARGE = ("to_limit", "to_context", "paged", "done_tokens")
FIELDS = (*DRAWN, "cached", "running", "done", "done_tokens", "step")
PENDING = 4096  # steps that wait to become columns, at most
_COMES, _GOES = (BlockEvent.TAKEN, BlockEvent.SHARED), (BlockEvent.LEFT, BlockEvent.KEPT, BlockEvent.FREED)


@dataclass(frozen=True, slots=True)
class Moment:
    """The pool after one step, in tokens.

    `used`, `reserved`, `internal`, `external` are the step's. `to_limit` and `to_context` are computed: what contiguous
    strips would hold for the branches that held memory then, each reserved to its prompt + max_tokens (never more than
    the context), or to the model's whole context (0 where that is not known). `paged`, in modes that are not: the
    blocks that paging would have given to those that still want tokens. `cached` is free, and kept for its prefix.
    `done` branches were over by then, and held K and V of `done_tokens` tokens at their ends.
    """

    time: float
    step: int
    pool: int
    used: int
    reserved: int
    internal: int
    external: int
    to_limit: int
    to_context: int
    paged: int
    cached: int
    running: int
    done: int
    done_tokens: int

    @property
    def held(self) -> int:
        return self.used + self.reserved + self.internal

    @property
    def free(self) -> int:
        """What is left of the pool beside the four kinds."""
        return self.pool - self.held - self.external

    @property
    def shares(self) -> KvShares | None:
        """The four kinds as shares of their sum; None where it is zero."""
        total = self.held + self.external
        return KvShares(*(getattr(self, kind) / total for kind in KINDS)) if total else None


class MemorySeries:
    """Every series of one trace. A step's values last until the next step's end, as in the measures."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.block_size, self.context, self.token_bytes = 1, 0, 0
        self.pool = 0  # tokens
        self.paged = self.keeps = True  # whether K and V lie in blocks, whether they are kept at all
        self.ended = Column(np.float64)
        self._values = {name: Column(np.int64 if name in LARGE else np.int32) for name in FIELDS}
        self._integrals = {name: Column(np.float64) for name in (*DRAWN, *(f"{kind} share" for kind in KINDS), "time")}
        # newest steps, before they are columns: no objects that a garbage collector would have to look at
        self._table, self._times, self._pending = np.zeros((PENDING, len(FIELDS)), np.int64), np.zeros((PENDING, 2)), 0
        self.presence = Presence()
        self._present = 0.0  # seconds in which requests were there, until the last step that is in columns
        self._base = np.zeros(256, np.int64)  # by request: where its branches begin in the arrays below
        self._reach = np.zeros(256, np.int64)  # by request: tokens of a strip for its prompt + max_tokens
        self._branches = 0
        self._computed, self._over = np.zeros(256, np.int64), np.zeros(256, bool)
        self._held: Counter[tuple[int, int]] | None = None  # blocks of each sample, of a cache that forgets
        self._running = self._to_limit = self._paged_blocks = self._done = self._done_tokens = 0

    def __frozen__(self) -> dict[str, Any]:
        """Without the table of steps that wait, of which there are none then."""
        self.settle()
        return vars(self) | {"_table": self._table[:0], "_times": self._times[:0]}

    # -- what is told ---------------------------------------------------------------------------------------------

    def take(self, records: Iterable[Record]) -> None:
        """The next records, in order."""
        for record in records:
            self.presence.feed(record)
            match record:
                case Step():
                    self._step(record)
                case Submitted():
                    self._submitted(record)
                case Ended():
                    self._ended(record)
                case Header():
                    self._begin(record)
                case _:
                    pass

    def _begin(self, header: Header) -> None:
        self.header, config, model = header, header.config, header.model
        self.block_size, self.context, self.token_bytes = config.block_size, model.context, header.kv_token_bytes
        self.pool = header.blocks * config.block_size
        self.paged, self.keeps = config.paged, config.mode != "recompute"
        self._held = Counter() if config.kv_window is not None else None

    def _submitted(self, record: Submitted) -> None:
        request, samples = record.request, record.params.branches
        if request >= len(self._base):
            more = max(request + 1, 2 * len(self._base)) - len(self._base)
            self._base, self._reach = (np.append(a, np.zeros(more, np.int64)) for a in (self._base, self._reach))
        if self._branches + samples > len(self._computed):
            more = self._branches + samples + len(self._computed)
            self._computed = np.append(self._computed, np.zeros(more, np.int64))
            self._over = np.append(self._over, np.zeros(more, bool))
        reach = len(record.token_ids) + record.params.max_tokens
        self._base[request], self._reach[request] = self._branches, min(reach, self.context or reach)
        self._branches += samples

    def _step(self, step: Step) -> None:
        if step.rows:
            self._rows(step)
        for event, request in self._first_blocks(step):
            # who holds a slot owns the first block of its table
            sign = 1 if event in _COMES else -1 if event in _GOES else 0
            self._running += sign
            self._to_limit += sign * int(self._reach[request])
        size = self.block_size
        if self._pending == PENDING:
            self.settle()
        kinds = (step.kv_used, step.kv_reserved, step.kv_internal, step.kv_external)
        computed = (self._to_limit, self._running * self.context, self._paged_blocks * size)
        over = (step.cached_blocks * size, self._running, self._done, self._done_tokens)
        self._table[self._pending] = (*kinds, *computed, *over, step.step)
        self._times[self._pending] = step.ended, self.presence.total
        self._pending += 1

    def _first_blocks(self, step: Step) -> list[tuple[int, int]]:
        """The events of first blocks that come to an owner, and with whose going he has none, in order: (event,
        request)."""
        if not len(step.block):
            return []
        if self._held is None:
            first = np.flatnonzero((step.block_place == 0) & (step.block_request >= 0))
            return list(zip(step.block_event[first].tolist(), step.block_request[first].tolist()))
        found = []  # the first block may be forgotten before the others go
        owners = zip(step.block_event.tolist(), step.block_request.tolist(), step.block_branch.tolist())
        for event, request, branch in owners:
            comes, held = event in _COMES, self._held[request, branch]
            self._held[request, branch] = held + (1 if comes else -1)
            if request >= 0 and held == (0 if comes else 1):
                found.append((event, request))
        return found

    def _rows(self, step: Step) -> None:
        index = self._base[step.request] + step.branch
        reached = step.first.astype(np.int64) + step.stays
        if self.paged:
            self._computed[index] = reached
            return
        held = step.kind == Kind.HELD
        if held.any():
            self._leave(index[held & ~self._over[index]])
            index, reached = index[~held], reached[~held]
        live = ~self._over[index]
        index, reached = index[live], reached[live]
        before = self._computed[index]
        if not self.keeps:  # its one request has a slot and no block
            joining = int((before == 0).sum())
            self._running += joining
            self._to_limit += int(self._reach[step.request[live][before == 0]].sum()) if joining else 0
        size = self.block_size
        self._paged_blocks += int((-(-reached // size) + -before // size).sum())
        self._computed[index] = reached

    def _leave(self, index: Array) -> None:
        """These branches get no more tokens."""
        self._over[index] = True
        if not self.paged:
            self._paged_blocks += int((-self._computed[index] // self.block_size).sum())

    def _ended(self, record: Ended) -> None:
        index = int(self._base[record.request]) + record.branch
        computed = int(self._computed[index])
        if not computed:
            return
        self._done += 1
        self._done_tokens += computed
        if not self._over[index]:
            self._leave(np.array([index]))
        if not self.keeps:
            self._running -= 1
            self._to_limit -= int(self._reach[record.request])
        # an end comes after the step in which it happened
        changed = {"paged": self._paged_blocks * self.block_size, "done": self._done, "done_tokens": self._done_tokens}
        if not self.keeps:
            changed |= {"running": self._running, "to_limit": self._to_limit}
            changed["to_context"] = self._running * self.context
        for name, value in changed.items():
            if self._pending:
                self._table[self._pending - 1, FIELDS.index(name)] = value
            elif self.ended.count:
                self._values[name].values[-1] = value

    # -- what it is asked -----------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many steps are known."""
        return self.ended.count + self._pending

    def values(self, name: str) -> Array:
        """One of FIELDS after each step."""
        self.settle()
        return self._values[name].values

    def place_at(self, time: float) -> int:
        """The last step that had ended then; -1 before the first."""
        self.settle()
        return int(np.searchsorted(self.ended.values, time, "right")) - 1

    def at(self, place: int) -> Moment | None:
        """The pool after the step of this place; None before the first."""
        self.settle()
        if not 0 <= place < self.ended.count:
            return None
        told = {name: int(column.values[place]) for name, column in self._values.items()}
        return Moment(time=float(self.ended.values[place]), pool=self.pool, **told)

    def shares_until(self, place: int) -> KvShares | None:
        """The mean shares of the run up to the step of this place, as `measure` defines them."""
        moment = self.at(place)
        if moment is None or place == 0:
            return moment.shares if moment is not None else None
        time = float(self._integrals["time"].values[place])
        if not time:
            return None
        return KvShares(*(float(self._integrals[f"{kind} share"].values[place]) / time for kind in KINDS))

    def means(self, names: Iterable[str], edges: Array) -> dict[str, Array]:
        """The mean over time of series of DRAWN between neighbouring `edges` [columns + 1] (seconds, rising): tokens
        [columns]. Before the first step all is zero; the last step's values last for ever."""
        self.settle()
        ended, count = self.ended.values, self.ended.count
        place = np.searchsorted(ended, edges, "right") - 1
        known = np.maximum(place, 0)
        past = edges - ended[known] if count else np.zeros(len(edges))
        width = np.diff(edges)
        result = {}
        for name in names:
            if not count:
                result[name] = np.zeros(len(width))
                continue
            whole = self._integrals[name].values[known] + self._values[name].values[known] * past
            result[name] = np.diff(np.where(place < 0, 0.0, whole)) / width
        return result

    def settle(self) -> None:
        """Makes columns, and their integrals, of the steps that came since the last time: O(those)."""
        if not self._pending:
            return
        old, new, self._pending = self.ended.count, self._pending, 0
        for name, values in zip(FIELDS, self._table.T):
            self._values[name].extend(values[:new], new)
        ended, present = self._times[:new].T
        self.ended.extend(ended, new)
        begin = max(0, old - 1)
        seconds = np.diff(self.ended.values[begin:])
        for name in DRAWN:
            self._integrate(name, self._values[name].values[begin:-1] * seconds, old)
        kinds = np.stack([self._values[kind].values[begin:-1] for kind in KINDS]).astype(float)
        total = kinds.sum(axis=0)
        seconds = np.diff(present, prepend=self._present)[0 if old else 1 :]
        self._present = float(present[-1])
        self._integrate("time", np.where(total > 0, seconds, 0.0), old)
        shares = kinds / np.maximum(total, 1.0)
        for kind, share in zip(KINDS, shares):
            self._integrate(f"{kind} share", share * seconds, old)

    def _integrate(self, name: str, amounts: Array, old: int) -> None:
        column = self._integrals[name]
        if not old:
            column.append(0.0)
        before = float(column.values[-1])
        column.extend(before + np.cumsum(amounts), len(amounts))
