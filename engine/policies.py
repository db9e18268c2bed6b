"""The batching modes: who may join a step, and how many tokens each gets. One small class a mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.paging import Paging
from engine.plan import Refused, Row
from engine.strips import NoCache, Strips
from engine.trace.records import Refusal

if TYPE_CHECKING:
    from engine.scheduler import Room, Scheduler


class Policy(Protocol):
    """`leave_together`: finished branches keep slot and memory until all that run are finished."""

    leave_together: bool

    def plan(self, now: float) -> tuple[list[Row], Refused]:
        """The rows of the next step at `now`, and the head of the queue with the reason why it did not join."""
        ...

    def patience(self, now: float) -> float | None:
        """Seconds until the passing of time alone may change the plan; None when it cannot."""
        ...


class _Untimed:
    leave_together = False

    def patience(self, now: float) -> float | None:
        return None


class Continuous(_Untimed):
    """Requests join and leave at every step. Prefill steps and decode steps take turns while there is work for both,
    so that neither starves: new requests join after every `join_every` decode steps."""

    def __init__(self, scheduler: Scheduler, room: Paging | Strips) -> None:
        self._scheduler, self._room = scheduler, room
        self._decodes = scheduler.config.join_every  # steps since the last prefill

    def plan(self, now: float) -> tuple[list[Row], Refused]:
        scheduler, every = self._scheduler, self._scheduler.config.join_every
        if self._decodes < every:
            rows = self._room.decode_rows()
            if rows:
                self._decodes += 1
                return rows, scheduler.refuse(Refusal.DECODE_TURN if every == 1 else Refusal.JOIN_TURN)
        rows, refused = self._room.prefill_rows(scheduler.limits.of_prompts(scheduler.config.token_budget))
        if rows:
            self._decodes = 0
            return rows, refused
        return self._room.decode_rows(), refused


class Chunked(_Untimed):
    """Decodes and chunks of prompts share every step's token budget; decodes first, so that no prompt stalls them."""

    def __init__(self, scheduler: Scheduler, room: Paging) -> None:
        self._scheduler, self._room = scheduler, room
        self._since = scheduler.config.join_every

    def plan(self, now: float) -> tuple[list[Row], Refused]:
        scheduler = self._scheduler
        decodes = self._room.decode_rows()
        joins = self._since >= scheduler.config.join_every or not decodes
        budget = scheduler.limits.of_prompts(scheduler.config.token_budget - len(decodes))
        prompts, refused = self._room.prefill_rows(budget, admit=joins)
        self._since = 1 if joins else self._since + 1
        return decodes + prompts, refused if joins else scheduler.refuse(Refusal.JOIN_TURN)


class Batches:
    """Static and dynamic: a batch joins together, and leaves together when its last row ends.

    A batch starts when it is full. A static one also when no other requests are to follow; a dynamic one (`wait` in
    seconds) when its first request has waited so long. Sequential is a batch of one.
    """

    leave_together = True

    def __init__(self, scheduler: Scheduler, room: Strips, wait: float | None = None) -> None:
        self._scheduler, self._room, self._wait = scheduler, room, wait

    def plan(self, now: float) -> tuple[list[Row], Refused]:
        scheduler = self._scheduler
        if scheduler.running:
            return self._room.decode_rows(), scheduler.refuse(Refusal.BATCH_RUNS)
        full = scheduler.waiting_count >= scheduler.config.slots
        if not full and (scheduler.more if self._wait is None else (self.patience(now) or 0) > 0):
            return [], scheduler.refuse(Refusal.BATCH_FILLS)
        return self._room.prefill_rows(scheduler.limits.prompts)

    def patience(self, now: float) -> float | None:
        head = self._scheduler.head()
        if self._wait is None or head is None or self._scheduler.running:
            return None
        return max(0.0, head.request.arrived + self._wait - now)


class Recompute(_Untimed):
    """One request at a time and no cache: every step computes its whole sequence again."""

    def __init__(self, scheduler: Scheduler, room: NoCache) -> None:
        self._scheduler, self._room = scheduler, room

    def plan(self, now: float) -> tuple[list[Row], Refused]:
        if not self._scheduler.running and self._scheduler.head() is not None:
            self._scheduler.admit()
        return self._room.rows(), self._scheduler.refuse(Refusal.NO_SLOT)


def make(scheduler: Scheduler) -> tuple[Policy, Room]:
    """The policy of the config's mode, and the room it works in."""
    match scheduler.config.mode:
        case "recompute":
            nothing = NoCache(scheduler)
            return Recompute(scheduler, nothing), nothing
        case "sequential" | "static":
            strips = Strips(scheduler, aligned=True)
            return Batches(scheduler, strips), strips
        case "dynamic":
            strips = Strips(scheduler, aligned=True)
            return Batches(scheduler, strips, scheduler.config.longest_wait), strips
        case "continuous-padded":
            strips = Strips(scheduler, aligned=False)
            return Continuous(scheduler, strips), strips
        case "continuous":
            paging = Paging(scheduler)
            return Continuous(scheduler, paging), paging
        case "chunked":
            paging = Paging(scheduler)
            return Chunked(scheduler, paging), paging
        case mode:
            raise AssertionError(f"no policy for mode {mode!r}")
