"""Who has what: the queue, the slots and the blocks. Policies and KV layouts stand on it; the scheduler owns one."""

import heapq
from collections import deque
from collections.abc import Iterable
from itertools import count, repeat

from engine.config.live_budget import LiveBudget
from engine.scheduler.block_pool import ROOT, BlockPool
from engine.scheduler.limits import Limits
from engine.scheduler.plan import BlockChange, Changes, Refused
from engine.scheduler.request import Branch, Life, Request
from engine.scheduler.swapping import Swapping
from engine.trace.records import BlockEvent, Refusal


class Ledger:
    """Hands slots and blocks to branches and takes them back, and notes what changed.

    `running` is in order of admission, and the last one admitted is preempted first. `in_flight` counts launched steps
    that are not committed. `more` says that other requests follow without waiting for these.
    """

    def __init__(self, slots: int, pool: BlockPool, budget: LiveBudget, swapping: Swapping) -> None:
        self.slots, self.pool = slots, pool
        self.waiting: deque[Branch] = deque()
        self.running: list[Branch] = []
        self.in_flight = 0
        self.waiting_count = 0
        self.more = False
        self.limits = Limits(budget)
        self.swapping = swapping
        self.changes = Changes()
        self._free_slots = list(range(slots))

    @property
    def has_changes(self) -> bool:
        return bool(self.changes.blocks or self.changes.preempted or self.changes.swaps)

    @property
    def slot_free(self) -> bool:
        return bool(self._free_slots) and len(self.running) < self.limits.running

    def take_changes(self) -> Changes:
        """What happened since the last call."""
        changes, self.changes = self.changes, Changes()
        return changes

    # The queue.

    def add(self, request: Request) -> None:
        self.waiting.extend(request.branches)
        self.waiting_count += len(request.branches)

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

    def preempt(self, branch: Branch) -> None:
        """Takes a branch's blocks; it waits at the head of the queue, and its K and V in host memory if they may. Else
        it computes its known tokens again.

        Those admitted last are preempted first and wait before all that never ran, in the order of their admission. So
        who was admitted first is preempted by nobody and ends, and then the next is the first.
        """
        assert branch.steps == 0, "a branch in flight cannot be preempted"
        self.swapping.out(branch, self.changes)
        self.requeue(branch, Life.PREEMPTED)
        self.changes.preempted.append((branch.request.id, branch.index))

    def requeue(self, branch: Branch, life: Life) -> None:
        """Takes a branch's blocks and slot; it is the head of the queue."""
        self.release(branch)
        branch.computed, branch.life = 0, life
        self.waiting.appendleft(branch)
        self.waiting_count += 1

    # Blocks.

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
        """Takes all but the first `keep` of a branch's blocks. The last goes first, so that of a cached chain the end
        is forgotten before the beginning."""
        blocks = branch.blocks[keep:][::-1]
        self._note(branch, zip(self.pool.release(blocks), blocks), len(branch.blocks) - 1, -1)
        del branch.blocks[keep:]

    def release(self, branch: Branch) -> None:
        """Takes a branch's blocks and slot."""
        self.give_back(branch)
        branch.published, branch.serial, branch.restored = 0, ROOT, (0, 0)
        heapq.heappush(self._free_slots, branch.slot)
        branch.slot = -1
        self.running.remove(branch)

    def drop_swapped(self, branch: Branch) -> None:
        """Gives back what a branch has in host memory."""
        self.swapping.drop(branch, self.changes)

    def withdraw(self, blocks: Iterable[int]) -> None:
        """Unpublishes blocks whose content was never written; those that nobody owns become free."""
        freed = self.pool.withdraw(blocks)
        self.changes.blocks += [BlockChange(BlockEvent.FREED, block, -1, -1, -1) for block in freed]

    def _note(self, branch: Branch, events: Iterable[tuple[BlockEvent, int]], place: int, step: int = 1) -> None:
        request, places = branch.request.id, count(place, step)
        self.changes.blocks += [
            BlockChange(event, block, request, branch.index, next(places)) for event, block in events
        ]
