"""Who computes what in the next step, and what becomes of it: plan() and commit(), or retract() and abandon() where it
failed. No tensors here.

The scheduler holds the queue, the slots and the ledger of blocks. How branches get memory and become rows is in
`paging` (blocks that grow) and `strips` (contiguous, padded); who joins when is the mode's policy.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count, repeat
from math import inf
from typing import Protocol

from engine import policies
from engine.blocks import ROOT, BlockPool, blocks_for
from engine.config import EngineConfig
from engine.limits import Limits
from engine.plan import BlockChange, Changes, Committed, KvUse, Refused, Row, StepPlan
from engine.request import Branch, Emission, Life, Request
from engine.trace.records import BlockEvent, FinishReason, Kind, Refusal


class Room(Protocol):
    """Where running branches keep K and V: gives them memory and makes them rows. Paging, Strips or NoCache."""

    def seal(self, rows: list[Row], refused: Refused) -> StepPlan:
        """The plan of these rows, with what the runner must know of the memory."""
        ...

    def use(self) -> tuple[int, int, int]:
        """Owned tokens: used, reserved, internal."""
        ...


class Scheduler:
    """Holds the waiting and the running. `in_flight` counts launched steps that are not committed.

    Cost a step: O(running), whatever waits. Running branches are in order of admission, and the last one admitted is
    preempted first. `more` says that other requests follow without waiting for these.
    """

    def __init__(self, config: EngineConfig, pool: BlockPool) -> None:
        self.config, self.pool = config, pool
        self.waiting: deque[Branch] = deque()
        self.running: list[Branch] = []
        self.requests: dict[int, Request] = {}
        self.in_flight = 0
        self.waiting_count = 0
        self.more = False
        self.limits = Limits()
        self.changes = Changes()
        self._free_slots = list(range(config.slots))
        self._ended: list[Branch] = []
        self.policy, self.room = policies.make(self)

    @property
    def idle(self) -> bool:
        return not self.requests and self.in_flight == 0

    @property
    def has_changes(self) -> bool:
        return bool(self.changes.blocks or self.changes.preempted)

    @property
    def slot_free(self) -> bool:
        return bool(self._free_slots) and (self.limits.rows is None or len(self.running) < self.limits.rows)

    def add(self, request: Request) -> None:
        self.requests[request.id] = request
        self.waiting.extend(request.branches)
        self.waiting_count += len(request.branches)

    def plan(self, now: float = inf) -> StepPlan | None:
        """The next step at `now`, seconds from the trace's start; None when there is nothing to compute before a step
        in flight is committed, a request arrives or `patience` is over."""
        rows, refused = self.policy.plan(now)
        if not rows:
            return None
        plan = self.room.seal(rows, refused)
        for row in rows:
            branch = row.branch
            branch.steps += 1
            if row.kind is not Kind.HELD:
                branch.computed = row.first + row.count
                branch.reached = max(branch.reached, branch.computed)
                branch.in_flight += row.samples
        self.in_flight += 1
        return plan

    def patience(self, now: float) -> float | None:
        """Seconds after which the passing of time alone may allow a step; None when it cannot."""
        return self.policy.patience(now) if self.waiting_count else None

    def commit(self, plan: StepPlan, sampled: Sequence[Emission]) -> list[Committed]:
        """Takes a step's sampled tokens, in the order of its sampling rows; returns each row's outcome."""
        self.in_flight -= 1
        tokens = iter(sampled)
        committed = [self._commit_row(row, next(tokens) if row.samples else None) for row in plan.rows]
        if self.config.delivery == "batch" and all(branch.over for branch in self.running):
            committed = [self._deliver(row, outcome) for row, outcome in zip(plan.rows, committed, strict=True)]
        self._dissolve()
        self.limits.went_well(self.config.token_budget, self.config.slots)
        return committed

    def retract(self, plan: StepPlan) -> None:
        """Takes back the newest plan in flight: what it was to compute is planned again, and those it admitted wait
        again in their order. What it preempted stays so.

        Not for a step that decodes over contiguous strips: their cache has moved on.
        """
        self.in_flight -= 1
        for branch, published, serial in reversed(plan.published):
            self.pool.withdraw(branch.blocks[published : branch.published])
            branch.published, branch.serial = published, serial
        self.changes.copied = [pair for pair in self.changes.copied if pair not in plan.copies]
        for row in reversed(plan.rows):
            branch = row.branch
            branch.steps -= 1
            branch.in_flight -= row.samples
            if branch.reached == branch.computed and row.again < row.count:
                branch.reached = row.first + row.again
            branch.computed = row.first
            if branch.finished:
                self._leave(branch)
            elif row.kind is Kind.PREFILL and row.first == row.reused:  # its first row
                self.release(branch)
                branch.computed = 0
                self._wait_again(branch, Life.PREEMPTED if branch.generated else Life.WAITING)

    def shrink(self, plan: StepPlan, error: str) -> bool:
        """Makes the steps to come smaller than `plan`, which ran out of memory and was retracted; nothing is in flight.

        Prompts go in smaller parts; where they are no matter, fewer run at once, and those admitted last are preempted.
        False when it was one row that cannot be smaller: it ends with `error`.
        """
        prompts = sum(row.count + row.padding for row in plan.rows if row.kind is Kind.PREFILL)
        divisible = self.config.paged or len(plan.rows) > 1  # a padded prompt goes whole
        if divisible and self.limits.halve(prompts, len(plan.rows)):
            if self.config.paged and self.limits.rows is not None:
                for branch in reversed(self.running[self.limits.rows :]):
                    self.preempt(branch)
            return True
        for row in plan.rows:
            if not row.branch.finished:
                self._finish(row.branch, FinishReason.ERROR, error)
        return False

    def abandon(self, plan: StepPlan, error: str) -> None:
        """Ends the branches of a step that failed, and those that share what it should have written; others go on."""
        self.in_flight -= 1
        for row in plan.rows:
            row.branch.steps -= 1
            row.branch.in_flight -= row.samples
        lost = self._withdraw(plan)
        for branch in [row.branch for row in plan.rows] + [b for b in self.running if not lost.isdisjoint(b.blocks)]:
            if not branch.finished:
                self._finish(branch, FinishReason.ERROR, error)
            else:
                self._leave(branch)
        self._dissolve()

    def finish(self, request: Request, reason: FinishReason, error: str = "") -> None:
        """Ends all of a request's branches now. Blocks and slots go back when no step in flight names them."""
        for branch in request.branches:
            if not branch.finished:
                self._finish(branch, reason, error)
        self._dissolve()

    def take_changes(self) -> Changes:
        """What happened since the last call."""
        changes, self.changes = self.changes, Changes()
        return changes

    def take_ended(self) -> list[Branch]:
        """The branches that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def kv_use(self, refused: Refused) -> KvUse:
        """The pool's tokens by kind, after a step whose plan refused these."""
        starved = any(reason is Refusal.NO_BLOCKS for _, reason in refused)
        return KvUse(*self.room.use(), self.pool.available * self.pool.block_size if starved else 0)

    # What policies and rooms are made of.

    def head(self) -> Branch | None:
        """The first in the queue."""
        while self.waiting and self.waiting[0].finished:
            self.waiting.popleft()
        return self.waiting[0] if self.waiting else None

    def refuse(self, reason: Refusal) -> Refused:
        """The head of the queue with the reason why it did not join this step."""
        head = self.head()
        return ((head.request.id, reason),) if head is not None else ()

    def admit(self) -> Branch:
        """The head of the queue, with a slot."""
        branch = self.waiting.popleft()
        self.waiting_count -= 1
        branch.life = Life.RUNNING
        branch.slot = heapq.heappop(self._free_slots)
        self.running.append(branch)
        return branch

    def take(self, branch: Branch, count: int) -> None:
        """`count` more blocks for a branch."""
        blocks = self.pool.take(count)
        self._note(branch, zip(repeat(BlockEvent.TAKEN), blocks), len(branch.blocks))
        branch.blocks += blocks

    def share(self, branch: Branch, blocks: list[int]) -> None:
        """Blocks that are others' or cached, for a branch that has none yet."""
        self.pool.share(blocks)
        self._note(branch, zip(repeat(BlockEvent.SHARED), blocks), 0)
        branch.blocks = list(blocks)

    def give_back(self, branch: Branch, keep: int = 0) -> None:
        """Takes all but the first `keep` of a branch's blocks.

        The last goes first, so that of a cached chain the end is forgotten before the beginning.
        """
        blocks = branch.blocks[keep:][::-1]
        self._note(branch, zip(self.pool.release(blocks), blocks), len(branch.blocks) - 1, -1)
        del branch.blocks[keep:]

    def _note(self, branch: Branch, events: Iterable[tuple[BlockEvent, int]], place: int, step: int = 1) -> None:
        request, places = branch.request.id, count(place, step)
        self.changes.blocks += [
            BlockChange(event, block, request, branch.index, next(places)) for event, block in events
        ]

    def release(self, branch: Branch) -> None:
        """Takes a branch's blocks and slot."""
        self.give_back(branch)
        branch.published, branch.serial = 0, ROOT
        heapq.heappush(self._free_slots, branch.slot)
        branch.slot = -1
        self.running.remove(branch)

    def preempt(self, branch: Branch) -> None:
        """Takes a branch's blocks; it waits at the head of the queue and computes its known tokens again."""
        assert branch.steps == 0, "a branch in flight cannot be preempted"
        self.release(branch)
        branch.computed = 0
        self._wait_again(branch, Life.PREEMPTED)
        self.changes.preempted.append((branch.request.id, branch.index))

    # Inside.

    def _wait_again(self, branch: Branch, life: Life) -> None:
        branch.life = life
        self.waiting.appendleft(branch)
        self.waiting_count += 1

    def _commit_row(self, row: Row, emission: Emission | None) -> Committed:
        branch = row.branch
        branch.steps -= 1
        branch.in_flight -= emission is not None
        if branch.life is Life.FINISHED or branch.verdict is not None or row.kind is Kind.HELD:
            self._leave(branch)
            return Committed((), row.count)
        if emission is None:
            return Committed((), row.again)
        branch.tokens.append(emission.token)
        text, reason = branch.output.push(emission.token)
        if text:
            emission = Emission(emission.token, emission.logprob, emission.alternatives, text)
        if self.config.delivery == "batch":
            branch.withheld.append(emission)
            branch.verdict = reason
            return Committed((), row.again)
        if reason is not None:
            self._finish(branch, reason)
        return Committed((emission,), row.again)

    def _deliver(self, row: Row, outcome: Committed) -> Committed:
        """All that a branch's batch held back of it: its last row, and so the batch's, says it."""
        branch = row.branch
        if branch.finished:
            return outcome
        delivered = Committed(tuple(branch.withheld), outcome.wasted)
        branch.withheld = []
        assert branch.verdict is not None
        self._finish(branch, branch.verdict)
        return delivered

    def _finish(self, branch: Branch, reason: FinishReason, error: str = "") -> None:
        if branch.life in (Life.WAITING, Life.PREEMPTED):
            self.waiting_count -= 1  # its place in the queue is skipped when it is reached
        branch.life, branch.reason, branch.error = Life.FINISHED, reason, error
        if branch.request.finished:
            del self.requests[branch.request.id]
        self._ended.append(branch)
        self._leave(branch)

    def _leave(self, branch: Branch) -> None:
        """A finished branch goes as soon as no step in flight names it, unless its batch leaves together."""
        if branch.finished and branch.slot >= 0 and branch.steps == 0 and not self.policy.leave_together:
            self.release(branch)

    def _dissolve(self) -> None:
        """A batch that leaves together goes when all of it is finished and no step in flight names it."""
        if self.policy.leave_together and all(b.finished and b.steps == 0 for b in self.running):
            for branch in list(self.running):
                self.release(branch)

    def _withdraw(self, plan: StepPlan) -> set[int]:
        """Unpublishes the blocks that a failed step should have written to; returns them, and the copies of them that
        the step after it, if it is in flight already, has made."""
        size, lost = self.pool.block_size, set()
        for row in plan.rows:
            lost.update(row.branch.blocks[row.first // size : blocks_for(row.first + row.count, size)])
        lost.update(copy for source, copy in self.changes.copied if source in lost)
        self.changes.blocks += [BlockChange(BlockEvent.FREED, block, -1, -1, -1) for block in self.pool.withdraw(lost)]
        return lost
