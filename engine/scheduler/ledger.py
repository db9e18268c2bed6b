"""Who has what: the queue, the slots and the blocks. Policies and KV layouts stand on it; the scheduler owns one."""

import heapq
from collections.abc import Iterable
from itertools import count, repeat

from engine.config.live_budget import LiveBudget
from engine.scheduler.block_pool import ROOT, BlockPool, Evicted
from engine.scheduler.host_memory import HostPool, Offloading, Swapping
from engine.scheduler.kv_window import NOTHING, KvWindow
from engine.scheduler.limits import Limits
from engine.scheduler.plan import BlockChange, Changes, Refused, StepPlan
from engine.scheduler.request import Branch, Life, Request
from engine.scheduler.waiting import Waiting
from engine.trace.records import BlockEvent, Refusal


class Ledger:
    """Hands slots and blocks to branches and takes them back, and notes what changed.

    `running` is in order of admission, and the last of `in_order` is preempted first. `in_flight` counts launched steps
    that are not committed. `more` says that other requests follow without waiting for these.
    """

    def __init__(
        self,
        slots: int,
        pool: BlockPool,
        budget: LiveBudget,
        host: HostPool,
        admission: str,
        swapping: Swapping | None = None,
        offloading: Offloading | None = None,
        adapters_apart: bool = False,
        window: KvWindow | None = None,
    ) -> None:
        self.slots, self.pool = slots, pool
        self.waiting = Waiting(admission, pool, adapters_apart, most=slots)
        self._by_priority = admission == "priority"
        self.running: list[Branch] = []
        self.in_flight = 0
        self.waiting_count = 0
        self.more = False
        self.states = False  # whether a branch has one that nobody else can begin with
        self.yields = False  # nobody makes way while the one who should is away: nothing is sent before he has
        self.limits = Limits(budget)
        self.limits.steer(budget)
        self.host, self.swapping, self.offloading, self.window = host, swapping, offloading, window
        self.changes = Changes()
        self.copies: list[tuple[int, int]] = []  # pairs of blocks (from, to) to copy before the next step
        self._free_slots = list(range(slots))

    @property
    def has_changes(self) -> bool:
        return bool(self.changes.blocks or self.changes.preempted or self.changes.swaps)

    def slots_free(self, branches: int = 1) -> bool:
        """Whether so many branches may be admitted now. Some that only run together do where nothing else runs,
        whatever the limits say."""
        if len(self._free_slots) < branches:
            return False
        running = len(self.running)
        return running + branches <= self.limits.running or (branches > 1 and not running)

    def take_changes(self) -> Changes:
        """What happened since the last call."""
        changes, self.changes = self.changes, Changes()
        return changes

    # The queue.

    def add(self, request: Request) -> None:
        going = [branch for branch in request.branches if not branch.finished]
        self.waiting.add(going)
        self.waiting_count += len(going)

    def head(self) -> Branch | None:
        """The first in the queue."""
        return self.waiting.first()

    def refuse(self, reason: Refusal) -> Refused:
        """The head of the queue with the reason why it did not join this step."""
        head = self.head()
        return ((head.request.id, reason),) if head is not None else ()

    def admit(self) -> Branch:
        """The head of the queue, with a slot."""
        branch = self.waiting.take()
        self.waiting_count -= 1
        branch.life = Life.RUNNING
        branch.slot = heapq.heappop(self._free_slots)
        self.running.append(branch)
        return branch

    def in_order(self) -> list[Branch]:
        """Those that run, in the order in which they are served: of admission; where that goes by priority the lowest
        number first, of those alike who was admitted first."""
        if self._by_priority:
            return sorted(self.running, key=lambda branch: branch.request.params.priority)
        return self.running[:]

    @property
    def victim(self) -> Branch:
        """Who makes way where blocks or places run out: the last that is served."""
        return self.in_order()[-1] if self._by_priority else self.running[-1]

    def preempt(self, branch: Branch) -> None:
        """Takes a branch's blocks, and those of what runs together with it; it waits at the head of the queue, and its
        K and V in host memory if they may. Else it computes its known tokens again, as a beam search's paths do.

        Victims wait before all that never ran, in the order of their admission; by priority, before those of the same
        number. So who is served first of all is preempted by nobody and ends, and then the next is the first.
        """
        assert all(each.steps == 0 for each in branch.together), "a branch in flight cannot be preempted"
        if branch.beam is None and self.swapping is not None:
            self.forget(branch)
            self.swapping.out(branch, self.changes)
        self.requeue(branch, Life.PREEMPTED)
        self.changes.preempted += [(each.request.id, each.index) for each in branch.together]

    def requeue(self, branch: Branch, life: Life) -> None:
        """Takes a branch's blocks and slot, and those of what runs together with it; they are the head of the queue."""
        for each in reversed(branch.together):
            self.release(each)
            each.computed, each.life = 0, life
            self.waiting.put_back(each)
            self.waiting_count += 1

    # Blocks.

    def take(self, branch: Branch, count: int) -> None:
        """`count` more blocks for a branch."""
        if self.offloading is None:
            blocks = self.pool.take(count)
        else:
            evicted: list[Evicted] = []
            blocks = self.pool.take(count, evicted)
            self.offloading.keep(evicted, self.changes)
        branch.blocks += blocks
        self._note(branch, zip(repeat(BlockEvent.TAKEN), blocks), branch.places[len(branch.blocks) - count :])

    def share(self, branch: Branch, blocks: list[int]) -> None:
        """Blocks that are others' or cached, for a branch that has none yet."""
        self.pool.share(blocks)
        self._note(branch, zip(repeat(BlockEvent.SHARED), blocks), count())
        branch.blocks = list(blocks)

    def bring(self, branch: Branch, hosts: list[int], count: int) -> None:
        """`count` more blocks for a branch, of which the first get what these of host memory keep."""
        if not hosts or self.offloading is None:
            return self.take(branch, count)
        place = len(branch.blocks)
        self.offloading.hold(hosts)
        self.take(branch, count)
        self.offloading.back(branch, hosts, place, self.changes)

    def fork(self, branch: Branch, source: Branch) -> None:
        """All that another branch has, tokens and blocks, in place of what this one had; what both hold stays."""
        pairs = zip(branch.blocks, source.blocks)
        same = next(
            (i for i, (own, its) in enumerate(pairs) if own != its), min(len(branch.blocks), len(source.blocks))
        )
        self.give_back(branch, same)
        blocks = source.blocks[same:]
        self.pool.share(blocks)
        self._note(branch, zip(repeat(BlockEvent.SHARED), blocks), count(same))
        branch.blocks += blocks
        branch.tokens = source.tokens[:]
        branch.computed, branch.reached = source.computed, source.reached
        branch.published, branch.serial = source.published, source.serial

    def write_alone(self, branch: Branch) -> None:
        """Copy on write: a block of its own in place of the last one, which others hold too."""
        shared = branch.blocks[-1]
        self.give_back(branch, len(branch.blocks) - 1)
        self.take(branch, 1)
        self.copy(shared, branch.blocks[-1])

    def copy(self, source: int, target: int) -> None:
        """What the one block holds goes to the other before the next step."""
        self.copies.append((source, target))
        self.changes.copied.append((source, target))

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        """What is to be copied before the step being planned; a block that was taken twice gets what came last."""
        if not self.copies:
            return ()
        copies, self.copies = {target: source for source, target in self.copies}, []
        return tuple((source, target) for target, source in copies.items())

    def give_back(self, branch: Branch, keep: int = 0) -> None:
        """Takes all but the first `keep` of a branch's blocks. The last goes first, so that of a cached chain the end
        is forgotten before the beginning."""
        blocks = branch.blocks[keep:][::-1]
        self._note(branch, zip(self.pool.release(blocks), blocks), branch.places[::-1])
        del branch.blocks[keep:]
        # What was to be copied to a block that is nobody's now would overwrite what comes back from host memory to it.
        for pair in [pair for pair in self.copies if not self.pool.references(pair[1])]:
            self.copies.remove(pair)
            if pair in self.changes.copied:  # else a record has told of it
                self.changes.copied.remove(pair)

    def forget(self, branch: Branch) -> None:
        """Takes the blocks that a branch's next token does not see; those after them move up."""
        if self.window is None:
            return
        gone = self.window.gone(branch.request.prompt_length, branch.computed)
        at = gone.start
        if len(gone) <= len(branch.gone):
            return
        blocks = branch.blocks[at : at + len(gone) - len(branch.gone)][::-1]
        self._note(branch, zip(self.pool.release(blocks), blocks), count(gone.stop - 1, -1))
        del branch.blocks[at : at + len(blocks)]
        branch.gone = gone

    def release(self, branch: Branch) -> None:
        """Takes a branch's blocks and slot."""
        self.give_back(branch)
        branch.gone = NOTHING
        branch.published, branch.serial, branch.drafting, branch.restored = 0, ROOT, None, (0, 0)
        heapq.heappush(self._free_slots, branch.slot)
        branch.slot = -1
        self.running.remove(branch)

    def drop_swapped(self, branch: Branch) -> None:
        """Gives back what a branch has in host memory."""
        if self.swapping is not None:
            self.swapping.drop(branch, self.changes)

    def forget_copied(self, plan: StepPlan) -> None:
        """What a step that failed was to copy to host memory: nobody knows whether it did."""
        for user in (self.swapping, self.offloading):
            if user is not None:
                user.forget(plan.swap_out, self.changes)

    def withdraw(self, blocks: Iterable[int]) -> None:
        """Unpublishes blocks whose content was never written; those that nobody owns become free."""
        freed = self.pool.withdraw(blocks)
        self.changes.blocks += [BlockChange(BlockEvent.FREED, block, -1, -1, -1) for block in freed]

    def _note(self, branch: Branch, events: Iterable[tuple[BlockEvent, int]], places: Iterable[int]) -> None:
        request, index = branch.request.id, branch.index
        self.changes.blocks += [
            BlockChange(event, block, request, index, place) for (event, block), place in zip(events, places)
        ]
