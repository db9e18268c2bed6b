"""Preemption by swap: which blocks of preempted branches lie in host memory, and what is copied with the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduler.block_pool import BlockPool, blocks_for
from engine.scheduler.host_memory.host_pool import HostPool
from engine.scheduler.kv_window import NOTHING
from engine.scheduler.plan import Changes, SwapChange
from engine.scheduler.request import Branch, Swapped
from engine.trace.records import SwapEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.scheduler.host_memory.host_pool import Pairs
    from engine.scheduler.host_memory.swap_cost import SwapCost


class Swapping:
    """Of a preempted branch those blocks are copied that nobody else owns: a block that would merely be cached is the
    first to be taken by whoever the branch made way for. What others own stays theirs, and is found with them again, or
    computed again. Where prefixes are offloaded, those that can be found are: they are not copied a second time.
    """

    def __init__(self, pool: BlockPool, host: HostPool, cost: SwapCost | None = None) -> None:
        self._pool, self._host, self._cost = pool, host, cost
        self._owners: dict[int, Branch] = {}  # of each host block

    def out(self, branch: Branch, changes: Changes) -> None:
        """Has the K and V of a branch that is about to lose its blocks copied out, where there is room and it pays."""
        if branch.swapped is not None:
            return
        size, references = self._pool.block_size, self._pool.references
        place = next((i for i, block in enumerate(branch.blocks) if references(block) == 1), len(branch.blocks))
        place = place if self._pool.below is None else max(place, branch.published)
        gone = branch.gone if branch.computed > branch.gone.start * size else NOTHING
        if gone:  # what is not copied must be what can be computed again without what follows
            place = min(place, gone.start)
        end = blocks_for(branch.computed, size) - len(gone)
        blocks, before = branch.blocks[place:end], place * size
        if not blocks or len(blocks) > self._host.available:
            return
        if self._cost is not None and not self._cost.favours_swap(len(blocks), before, branch.computed - before):
            return
        hosts = tuple(self._host.take_forgetting(len(blocks), changes))
        branch.swapped = Swapped(place, hosts, branch.computed, gone)
        self._owners |= dict.fromkeys(hosts, branch)
        self._host.copy_out(zip(blocks, hosts, strict=True))
        self._note(changes, SwapEvent.OUT, branch, branch.swapped, place, blocks)

    def back(self, branch: Branch, held: Swapped, place: int, changes: Changes) -> None:
        """Has the blocks from `place` on copied to where they belong in the branch's table."""
        branch.swapped = None
        hosts = held.blocks[place - held.place :]
        blocks = branch.blocks[place : place + len(hosts)]
        self._disown(hosts)
        self._host.copy_back(zip(hosts, blocks, strict=True))
        self._note(changes, SwapEvent.IN, branch, held, place, blocks)
        self._note(changes, SwapEvent.DROPPED, branch, held, held.place, [-1] * (place - held.place))
        self._give_back(held.blocks[: place - held.place])

    def drop(self, branch: Branch, changes: Changes) -> None:
        """Gives back what a branch has in host memory."""
        held, branch.swapped = branch.swapped, None
        if held is not None:
            self._note(changes, SwapEvent.DROPPED, branch, held, held.place, [-1] * len(held.blocks))
            self._give_back(held.blocks)

    def forget(self, out: Pairs, changes: Changes) -> None:
        """Drops what a step that failed was to copy out: nobody knows whether it did."""
        for branch in {self._owners[host]: None for _, host in out if host in self._owners}:
            self.drop(branch, changes)

    def _give_back(self, hosts: Sequence[int]) -> None:
        self._disown(hosts)
        self._host.copy_nothing_to(hosts)
        self._host.release(hosts)

    def _disown(self, hosts: Sequence[int]) -> None:
        for host in hosts:
            del self._owners[host]

    def _note(
        self, changes: Changes, event: SwapEvent, branch: Branch, held: Swapped, place: int, blocks: list[int]
    ) -> None:
        owner, hosts = (branch.request.id, branch.index), held.blocks[place - held.place :]
        changes.swaps += [
            SwapChange(event, host, block, *owner, at) for host, block, at in zip(hosts, blocks, held.places(place))
        ]
