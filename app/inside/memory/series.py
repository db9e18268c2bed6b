"""What the KV pool held after each step, by kind, and what another way of keeping K and V would have held. No Qt.

A step costs O(its rows), and about 200 bytes for as long as the trace is; a picture costs O(its pixels + log steps),
whatever its span, since every series is kept with its integral over time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from app.inside.columns import Columns, Numbers
from engine.trace import Array, BlockEvent, Ended, Header, Kind, KvShares, Record, Step, Submitted

KINDS = ("used", "reserved", "internal", "external")


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


class _After(Columns):
    """The pool after each step, as a `Moment` tells it."""

    time, step = Numbers(np.float64), Numbers(np.int64)
    used, reserved, internal, external = (Numbers(np.int32) for _ in KINDS)
    to_limit, to_context, paged = (Numbers(np.int64) for _ in range(3))
    cached, running, done, done_tokens = Numbers(np.int32), Numbers(np.int32), Numbers(np.int32), Numbers(np.int64)


class _Integrals(Columns):
    """Over time, up to each step's end: tokens, the kinds' shares of their sum, and seconds in which it was not 0."""

    used, reserved, internal, external = (Numbers(np.float64) for _ in KINDS)
    to_limit, to_context, paged = (Numbers(np.float64) for _ in range(3))
    used_share, reserved_share, internal_share, external_share = (Numbers(np.float64) for _ in KINDS)
    seconds = Numbers(np.float64)


class _Requests(Columns):
    """By request: where its branches begin, and the tokens of a strip for its prompt + max_tokens."""

    base, reach = Numbers(np.int64), Numbers(np.int64)


class _Branches(Columns):
    """How many tokens of each are computed, and whether it gets no more."""

    computed, over = Numbers(np.int64), Numbers(np.bool_)


class MemorySeries:
    """Every series of one trace. A step's values last until the next step's end, as in the measures."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.block_size, self.context, self.token_bytes = 1, 0, 0
        self.pool = 0  # tokens
        self.paged = self.keeps = True  # whether K and V lie in blocks, whether they are kept at all
        self._after, self._integrals = _After(), _Integrals()
        self._sums = [0.0] * len(_Integrals.names)
        self._ended: float | None = None  # the last step
        self._kinds: tuple[int, ...] = (0,) * len(KINDS)  # after it
        self._requests, self._branches = _Requests(), _Branches()
        self._running = self._to_limit = self._paged_blocks = self._done = self._done_tokens = 0

    # -- what is told ---------------------------------------------------------------------------------------------

    def take(self, records: Iterable[Record]) -> None:
        """The next records, in order."""
        for record in records:
            match record:
                case Step():
                    self._step(record)
                case Submitted():
                    self._submitted(record)
                case Ended():
                    self._end(record)
                case Header():
                    self._begin(record)
                case _:
                    pass

    def _begin(self, header: Header) -> None:
        self.header, config, model = header, header.config, header.model
        self.block_size, self.context, self.token_bytes = config.block_size, model.context, model.kv_token_bytes
        self.pool = header.blocks * config.block_size
        self.paged, self.keeps = config.paged, config.mode != "recompute"

    def _submitted(self, record: Submitted) -> None:
        request, requests, branches = record.request, self._requests, self._branches
        reach = len(record.token_ids) + record.params.max_tokens
        requests.grow_to(request + 1, 0, 0)
        requests.base[request], requests.reach[request] = len(branches), min(reach, self.context or reach)
        branches.extend(record.params.n, 0, False)

    @property
    def _computed(self) -> tuple[int, int, int]:
        """What contiguous strips and paging would hold: `to_limit`, `to_context`, `paged`."""
        return self._to_limit, self._running * self.context, self._paged_blocks * self.block_size

    def _step(self, step: Step) -> None:
        self._integrate(step.ended)
        self._kinds = (step.kv_used, step.kv_reserved, step.kv_internal, step.kv_external)
        if step.rows:
            self._rows(step)
        if len(step.block):
            # who holds a slot owns the first block of its table
            first = np.flatnonzero((step.block_place == 0) & (step.block_request >= 0))
            event = step.block_event[first]
            signs = np.where((event == BlockEvent.TAKEN) | (event == BlockEvent.SHARED), 1, -1)
            self._running += int(signs.sum())
            self._to_limit += int((signs * self._requests.reach[step.block_request[first]]).sum())
        over = (step.cached_blocks * self.block_size, self._running, self._done, self._done_tokens)
        self._after.append(step.ended, step.step, *self._kinds, *self._computed, *over)

    def _integrate(self, until: float) -> None:
        """The state after the last step lasted until then."""
        seconds = 0.0 if self._ended is None else until - self._ended
        total = sum(self._kinds)
        shares = [kind / total for kind in self._kinds] if total else self._kinds
        amounts = (*self._kinds, *self._computed, *shares, total > 0)
        self._sums = [so_far + amount * seconds for so_far, amount in zip(self._sums, amounts)]
        self._integrals.append(*self._sums)
        self._ended = until

    def _rows(self, step: Step) -> None:
        computed, over = self._branches.computed, self._branches.over
        index = self._requests.base[step.request] + step.branch
        reached = step.first.astype(np.int64) + step.count
        if self.paged:
            computed[index] = reached
            return
        held = step.kind == Kind.HELD
        if held.any():
            self._leave(index[held & ~over[index]])
            index, reached = index[~held], reached[~held]
        live = ~over[index]
        index, reached = index[live], reached[live]
        before = computed[index]
        if not self.keeps:  # its one request has a slot and no block
            joining = before == 0
            self._running += int(joining.sum())
            self._to_limit += int(self._requests.reach[step.request[live][joining]].sum())
        size = self.block_size
        self._paged_blocks += int((-(-reached // size) + -before // size).sum())
        computed[index] = reached

    def _leave(self, index: Array) -> None:
        """These branches get no more tokens."""
        self._branches.over[index] = True
        if not self.paged:
            self._paged_blocks += int((-self._branches.computed[index] // self.block_size).sum())

    def _end(self, record: Ended) -> None:
        """An end comes after the step in which it happened."""
        index = int(self._requests.base[record.request]) + record.branch
        computed = int(self._branches.computed[index])
        if not computed:
            return
        self._done += 1
        self._done_tokens += computed
        if not self._branches.over[index]:
            self._leave(np.array([index]))
        if not self.keeps:
            self._running -= 1
            self._to_limit -= int(self._requests.reach[record.request])
        values = dict(zip(("to_limit", "to_context", "paged"), self._computed))
        self._after.amend(**values, running=self._running, done=self._done, done_tokens=self._done_tokens)

    # -- what it is asked -----------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many steps are known."""
        return len(self._after)

    def values(self, name: str) -> Array:
        """One field of `Moment` after each step."""
        return np.asarray(getattr(self._after, name))

    def place_at(self, time: float) -> int:
        """The last step that had ended then; -1 before the first."""
        return self._after.last_at("time", time)

    def at(self, place: int) -> Moment | None:
        """The pool after the step of this place; None before the first."""
        return Moment(pool=self.pool, **self._after.numbers_at(place)) if 0 <= place < self.count else None

    def shares_until(self, place: int) -> KvShares | None:
        """The mean shares of the run up to the step of this place, as `measure` defines them."""
        moment = self.at(place)
        if moment is None or place == 0:
            return moment.shares if moment is not None else None
        until = self._integrals.numbers_at(place)
        if not until["seconds"]:
            return None
        return KvShares(*(until[f"{kind}_share"] / until["seconds"] for kind in KINDS))

    def means(self, names: Iterable[str], edges: Array) -> dict[str, Array]:
        """The mean over time of tokens between neighbouring `edges` [columns + 1] (seconds, rising): [columns]. Before
        the first step all is zero; the last step's values last for ever."""
        if not self.count:
            return {name: np.zeros(len(edges) - 1) for name in names}
        place = np.searchsorted(self._after.time, edges, "right") - 1
        known = np.maximum(place, 0)
        past = edges - self._after.time[known]
        result = {}
        for name in names:
            whole = getattr(self._integrals, name)[known] + self.values(name)[known] * past
            result[name] = np.diff(np.where(place < 0, 0.0, whole)) / np.diff(edges)
        return result
