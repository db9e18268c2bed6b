"""The prefix cache's lower tier: what the pool forgets is kept in host memory, and comes back when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduler.plan import Changes, SwapChange
from engine.trace.records import SwapEvent

if TYPE_CHECKING:
    from engine.scheduler.block_pool import BlockPool, Evicted
    from engine.scheduler.host_memory.host_pool import HostPool, Pairs
    from engine.scheduler.request import Branch


class Offloading:
    """A cached block of the pool that makes room is copied out first. What came back stays in host memory too, until it
    is what was not asked for longest there: so a prefix that goes up and down is copied out once."""

    def __init__(self, pool: BlockPool, host: HostPool) -> None:
        self._host = host
        pool.below = host

    def keep(self, evicted: list[Evicted], changes: Changes) -> None:
        """Has these blocks copied out, but for what is there. They come with a chain's end first, which is of no use
        without its beginning: where there is no room for all beside what is in use, for those that come last."""
        host = self._host
        missing = [each for each in evicted if not host.touch(each[1])]
        for block, key, serial in missing[max(0, len(missing) - host.available) :]:
            (there,) = host.take_forgetting(1, changes)
            host.answer(there, key, serial)
            host.copy_out([(block, there)])
            host.keep_after([there])
            changes.swaps.append(SwapChange(SwapEvent.OFFLOADED, there, block, -1, -1, -1))

    def hold(self, hosts: list[int]) -> None:
        """Keeps these from making room until they are copied `back`."""
        self._host.share(hosts)

    def back(self, branch: Branch, hosts: list[int], place: int, changes: Changes) -> None:
        """Has these, which `hold` was told of, copied to the branch's blocks from `place` on."""
        owner, blocks = (branch.request.id, branch.index), branch.blocks[place : place + len(hosts)]
        self._host.copy_back(zip(hosts, blocks, strict=True))
        changes.swaps += [
            SwapChange(SwapEvent.FOUND, host, block, *owner, at)
            for at, (host, block) in enumerate(zip(hosts, blocks), place)
        ]

    def forget(self, out: Pairs, changes: Changes) -> None:
        """Forgets what a step that failed was to copy out: nobody knows whether it did."""
        gone = [host for _, host in out if self._host.answers(host)]
        self._host.withdraw(gone)
        self._host.note_forgotten(gone, changes)
