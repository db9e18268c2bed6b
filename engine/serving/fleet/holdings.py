"""Which blocks of a replica belong to whom, as its records tell: what is lost with it, and what prompts find there."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine.trace.records import BlockEvent, Step, SwapEvent, freeze


class Owner(NamedTuple):
    request: int
    branch: int
    place: int


class Holdings:
    """Owners of blocks, in the numbers of the steps that it is told of."""

    def __init__(self) -> None:
        self._owners: dict[int, list[Owner]] = {}
        self._cached: set[int] = set()
        self._kept: dict[int, int | None] = {}  # block of host memory: of its tokens and all before, where known
        self._names: dict[int, int] = {}  # block: of its tokens and all before (`chained`)
        self._known: Counter[int] = Counter()

    def learn(self, step: Step, chains: Mapping[int, Sequence[int]]) -> None:
        """`chains` of the requests that are open."""
        moved = step.swap_event, step.swap_host, step.swap_block
        for event, host, block in zip(*(column.tolist() for column in moved)):  # before its block is another's
            if event == SwapEvent.OFFLOADED:
                self._kept[host] = name = self._names.get(block)
                if name is not None:
                    self._known[name] += 1
            elif event == SwapEvent.FORGOTTEN:
                self._unknow(self._kept.pop(host, None))
        columns = step.block_event, step.block, step.block_request, step.block_branch, step.block_place
        for event, block, *whose in zip(*(column.tolist() for column in columns)):
            owner = Owner(*whose)
            if event in (BlockEvent.TAKEN, BlockEvent.SHARED):
                if event == BlockEvent.TAKEN:
                    self._forget(block)
                self._cached.discard(block)
                self._owners.setdefault(block, []).append(owner)
                chain = chains.get(owner.request, ())
                if 0 <= owner.place < len(chain) and block not in self._names:
                    self._names[block] = chain[owner.place]
                    self._known[chain[owner.place]] += 1
                continue
            owners = self._owners.get(block, [])
            if owner in owners:
                owners.remove(owner)
            if not owners:
                self._owners.pop(block, None)
            if event == BlockEvent.KEPT:
                self._cached.add(block)
            elif event == BlockEvent.FREED:
                self._cached.discard(block)
                self._forget(block)

    def found(self, chain: Sequence[int]) -> int:
        """How many blocks of a prompt are there, from its first on, in the pool or in host memory."""
        for count, name in enumerate(chain):
            if name not in self._known:
                return count
        return len(chain)

    def lost(self) -> dict[str, Any]:
        """The columns of a step that tells that all of it is gone."""
        rows: list[tuple[int, int, int, int, int]] = []
        for block, owners in self._owners.items():
            for i, owner in enumerate(owners):
                rows.append((BlockEvent.LEFT if i < len(owners) - 1 else BlockEvent.FREED, block, *owner))
        rows += [(BlockEvent.FREED, block, -1, -1, -1) for block in self._cached]
        columns = np.array(rows, np.int32).reshape(-1, 5).T.copy()
        names = "block_event", "block", "block_request", "block_branch", "block_place"
        found = {name: freeze(column) for name, column in zip(names, columns)}
        nobody = freeze(np.full(len(self._kept), -1, np.int32))
        found |= dict.fromkeys(("swap_block", "swap_request", "swap_branch", "swap_place"), nobody)
        found["swap_host"] = freeze(np.array(sorted(self._kept), np.int32))
        events = {"block_event": columns[0], "swap_event": np.full(len(self._kept), SwapEvent.FORGOTTEN)}
        return found | {name: freeze(values.astype(np.uint8)) for name, values in events.items()}

    def _forget(self, block: int) -> None:
        self._unknow(self._names.pop(block, None))

    def _unknow(self, name: int | None) -> None:
        if name is not None:
            self._known[name] -= 1
            if not self._known[name]:
                del self._known[name]
