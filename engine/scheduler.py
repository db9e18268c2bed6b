"""Who computes what in the next step, and what becomes of it: plan() and commit(). No tensors here."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from engine.blocks import BlockPool, blocks_for
from engine.config import EngineConfig
from engine.policies import Policy, policy_for
from engine.request import Branch, Life, Request
from engine.trace.records import FinishReason, Kind, Refusal


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens [first, first + count) of a branch. `samples`: its last token's logits give the branch's next token.

    `fed`: the row's last token is still being sampled by the step before; the runner takes it from the device.
    `padding`: pad tokens to the left of the row, computed with it. `reused`: tokens found in the prefix cache, on a
    branch's first row.
    """

    branch: Branch
    slot: int
    first: int
    count: int
    kind: Kind
    samples: bool
    fed: bool
    padding: int = 0
    reused: int = 0


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step, immutable.

    In the padded modes `members` are all branches that hold a strip of the contiguous cache, in order of admission,
    the rows' own included, and `width` is how many tokens a strip holds; both are empty where nothing is cached.
    `copies` are pairs of blocks (from, to) to copy before the step: copy-on-write.
    """

    rows: tuple[Row, ...]
    refused: tuple[tuple[int, Refusal], ...] = ()
    members: tuple[Branch, ...] = ()
    width: int = 0
    copies: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Changes:
    """What happened to blocks and requests since the last record: whose each block became, None when it is free.

    A record tells of all that happened before it was made, so that its blocks owned and free always add up; at depth 1
    that includes what the next step took.
    """

    owner: dict[int, int | None] = field(default_factory=dict)
    preempted: list[int] = field(default_factory=list)

    @property
    def taken(self) -> list[tuple[int, int]]:
        """Pairs of a block and its request."""
        return [(block, request) for block, request in self.owner.items() if request is not None]

    @property
    def freed(self) -> list[int]:
        return [block for block, request in self.owner.items() if request is None]


@dataclass(frozen=True, slots=True)
class Committed:
    """One row's outcome: its new text, the token it sampled (-1: none) and how many of its tokens were for nothing."""

    text: str
    token: int
    wasted: int


class Scheduler:
    """Holds the waiting and the running. `in_flight` counts launched steps that are not committed.

    Cost a step: O(running), whatever waits. Running branches are in order of admission, and the last one admitted is
    preempted first.
    """

    def __init__(self, config: EngineConfig, pool: BlockPool) -> None:
        self.config, self.pool = config, pool
        self.policy: Policy = policy_for(config.mode)
        self.waiting: deque[Request] = deque()
        self.running: list[Branch] = []
        self.requests: dict[int, Request] = {}
        self.in_flight = 0
        self.waiting_count = 0
        self._free_slots = list(range(config.max_running))
        self._changes = Changes()
        self._ended: list[Request] = []

    @property
    def idle(self) -> bool:
        return not self.requests and self.in_flight == 0

    @property
    def has_changes(self) -> bool:
        return bool(self._changes.owner or self._changes.preempted)

    def add(self, request: Request) -> None:
        self.requests[request.id] = request
        self.waiting.append(request)
        self.waiting_count += 1

    def finish(self, request: Request, reason: FinishReason, error: str = "") -> None:
        """Ends a request now. Its blocks and slot go back when no step in flight names it."""
        if request.life in (Life.WAITING, Life.PREEMPTED):
            self.waiting_count -= 1  # its place in the queue is skipped when it is reached
        request.life, request.reason, request.error = Life.FINISHED, reason, error
        del self.requests[request.id]
        self._ended.append(request)
        for branch in request.branches:
            if branch.slot >= 0 and branch.steps == 0:
                self._release(branch)

    def plan(self) -> StepPlan | None:
        """The next step, or None when there is nothing to compute before a step in flight is committed."""
        rows, refused = self.policy.plan(self)
        if not rows:
            return None
        for row in rows:
            row.branch.computed = row.first + row.count
            row.branch.in_flight += row.samples
            row.branch.steps += 1
        self.in_flight += 1
        return StepPlan(tuple(rows), tuple(refused))

    def take_changes(self) -> Changes:
        """What happened since the last call."""
        changes, self._changes = self._changes, Changes()
        return changes

    def take_ended(self) -> list[Request]:
        """The requests that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def abandon(self, plan: StepPlan, error: str) -> None:
        """Ends the requests of a step that failed; the others go on."""
        self.in_flight -= 1
        for row in plan.rows:
            row.branch.steps -= 1
            row.branch.in_flight -= row.samples
        for row in plan.rows:
            if not row.branch.request.finished:
                self.finish(row.branch.request, FinishReason.ERROR, error)
            elif row.branch.steps == 0 and row.branch.slot >= 0:
                self._release(row.branch)

    def commit(self, plan: StepPlan, sampled: list[int]) -> list[Committed]:
        """Takes a step's sampled tokens, in the order of its sampling rows; returns each row's outcome."""
        self.in_flight -= 1
        tokens = iter(sampled)
        return [self._commit_row(row, next(tokens) if row.samples else -1) for row in plan.rows]

    def _commit_row(self, row: Row, token: int) -> Committed:
        branch = row.branch
        branch.steps -= 1
        branch.in_flight -= row.samples
        if branch.request.finished:
            if branch.steps == 0 and branch.slot >= 0:
                self._release(branch)
            return Committed("", -1, row.count)
        if not row.samples:
            return Committed("", -1, 0)
        branch.tokens.append(token)
        text, reason = branch.output.push(token)
        if reason is not None:
            self.finish(branch.request, reason)
        return Committed(text, token, 0)

    # What policies are made of.

    def decode_rows(self) -> list[Row]:
        """A row for every branch that decodes; the last admitted give way where blocks run out.

        While steps are in flight nothing can be preempted: then the rows so far, or none, are planned and the step in
        flight is committed first.
        """
        rows: list[Row] = []
        for branch in list(self.running):
            if branch.slot < 0 or branch.request.finished or not branch.decoding:
                continue
            if branch.generated >= branch.request.limit:
                continue
            if blocks_for(branch.computed + 1, self.config.block_size) > len(branch.blocks):
                while not self.pool.free:
                    if self.in_flight:
                        return []
                    self._preempt(self.running[-1])
                    if branch.slot < 0:
                        break
                if branch.slot < 0:
                    continue
                self._take(branch, 1)
            fed = branch.in_flight > 0
            rows.append(Row(branch, branch.slot, branch.computed, 1, Kind.DECODE, True, fed))
        return rows

    def prefill_rows(self, budget: int) -> tuple[list[Row], list[tuple[int, Refusal]]]:
        """Rows for prompts, in order of admission and then of arrival, and why the head of the queue was refused.

        A request is admitted when a slot is free and all its known tokens find blocks at once; its prompt may still
        take several steps.
        """
        rows: list[Row] = []
        for branch in self.running:
            started = branch.in_flight == 0 and branch.remaining > 0 and not branch.decoding
            if budget and started and not branch.request.finished:
                budget -= self._prefill(branch, budget, rows)
        refusal: Refusal | None = None
        while (head := self._head()) is not None and refusal is None:
            branch = head.branch
            needed = blocks_for(len(branch.tokens), self.config.block_size)
            reserve = max(1, self.pool.total // 100) if self.running else 0
            if not self._free_slots:
                refusal = Refusal.NO_SLOT
            elif self.pool.free < needed + reserve:
                refusal = Refusal.NO_BLOCKS
            elif budget <= 0:
                refusal = Refusal.BUDGET
            else:
                self.waiting.popleft()
                self.waiting_count -= 1
                head.life = Life.RUNNING
                branch.slot = heapq.heappop(self._free_slots)
                self.running.append(branch)
                self._take(branch, needed)
                budget -= self._prefill(branch, budget, rows)
        return rows, [(head.id, refusal)] if head is not None and refusal is not None else []

    def head_refused(self, reason: Refusal) -> list[tuple[int, Refusal]]:
        """The head of the queue with the reason why it was not looked at in this step."""
        head = self._head()
        return [(head.id, reason)] if head is not None else []

    def _head(self) -> Request | None:
        while self.waiting and self.waiting[0].finished:
            self.waiting.popleft()
        return self.waiting[0] if self.waiting else None

    def _prefill(self, branch: Branch, budget: int, rows: list[Row]) -> int:
        count = min(budget, branch.remaining)
        samples = count == branch.remaining
        rows.append(Row(branch, branch.slot, branch.computed, count, Kind.PREFILL, samples, False))
        return count

    def _take(self, branch: Branch, count: int) -> None:
        blocks = self.pool.take(count)
        branch.blocks += blocks
        self._changes.owner.update(dict.fromkeys(blocks, branch.request.id))

    def _release(self, branch: Branch) -> None:
        self._changes.owner.update(dict.fromkeys(self.pool.release(branch.blocks)))
        branch.blocks = []
        heapq.heappush(self._free_slots, branch.slot)
        branch.slot = -1
        self.running.remove(branch)

    def _preempt(self, branch: Branch) -> None:
        """Takes a branch's blocks; it waits at the head of the queue and computes its known tokens again."""
        assert branch.steps == 0, "a branch in flight cannot be preempted"
        self._release(branch)
        branch.computed = 0
        branch.request.life = Life.PREEMPTED
        self.waiting.appendleft(branch.request)
        self.waiting_count += 1
        self._changes.preempted.append(branch.request.id)
