"""The blocks of host memory: which are a preempted branch's, which keep a prefix, and what the next step copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduler.block_pool import BlockPool
from engine.scheduler.plan import Changes, SwapChange
from engine.trace.records import SwapEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

Pairs = tuple[tuple[int, int], ...]


class HostPool(BlockPool):
    """`total` blocks as large as those of the pool above. Identity only; the bytes are the runner's.

    Copies are made with the step that is planned next, all out before any in: whoever gets a block that was copied out
    writes to it after. A host block that the step reads, or that it keeps a prefix in, is nobody else's before that.
    """

    def __init__(self, total: int, block_size: int) -> None:
        super().__init__(total, block_size)
        self._out: list[tuple[int, int]] = []
        self._back: list[tuple[int, int]] = []
        self._until_sealed: list[int] = []

    def take_forgetting(self, count: int, changes: Changes) -> list[int]:
        """`take`, at the price of the prefixes that were not found for longest."""
        forgotten: list[tuple[int, tuple[int, tuple[int, ...]], int]] = []
        hosts = self.take(count, forgotten)
        self.note_forgotten((host for host, _, _ in forgotten), changes)
        return hosts

    def copy_out(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Of each pair the pool's block, the first, to the host block."""
        self._out += pairs

    def copy_back(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Of each pair the host block, the first, to the pool's. The caller's reference to it goes with the step."""
        pairs = list(pairs)
        self._back += pairs
        self._until_sealed += [host for host, _ in reversed(pairs)]  # a chain's end is to be forgotten first

    def keep_after(self, hosts: Iterable[int]) -> None:
        """The caller's references to these go with the step, the first of them is to be forgotten first."""
        self._until_sealed += hosts

    def copy_nothing_to(self, hosts: Iterable[int]) -> None:
        """Nobody needs what the next step was to copy to these."""
        dropped = set(hosts)
        self._out = [(block, host) for block, host in self._out if host not in dropped]

    def seal(self) -> tuple[Pairs, Pairs]:
        """What the step being planned copies: (block, host block) out, then (host block, block) back."""
        if not (self._out or self._back):
            return (), ()
        out, back, after = tuple(self._out), tuple(self._back), self._until_sealed
        self._out, self._back, self._until_sealed = [], [], []
        self.release(after)
        return out, back

    @staticmethod
    def note_forgotten(hosts: Iterable[int], changes: Changes) -> None:
        changes.swaps += [SwapChange(SwapEvent.FORGOTTEN, host, -1, -1, -1, -1) for host in hosts]
