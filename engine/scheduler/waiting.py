"""The branches that wait for a slot, and which of them is next."""

import heapq
from collections.abc import Iterable
from itertools import count
from math import inf

from engine.scheduler.block_pool import BlockPool, root_of
from engine.scheduler.request import Branch, Request

LOOKED_AT = 128  # requests at least, whose cached prefixes are looked up at once: it takes time in each step


class Waiting:
    """Who waits, in the order that `EngineConfig.admission` says. Those that ran before, and made way or were taken
    back, come before all that never ran, by priority before those of the same number, the one admitted first before the
    others: so that one ends, whatever the order is. The branches of a request stay together."""

    def __init__(self, admission: str, pool: BlockPool) -> None:
        self._admission, self._pool = admission, pool
        self._heap: list[tuple[float, int, Branch]] = []  # by rank, then by when they came
        self._numbers = count(1)

    def add(self, branches: Iterable[Branch]) -> None:
        for branch in branches:
            request = branch.request
            match self._admission:
                case "sjf":  # the most that its answer may have: how long it will be nobody knows
                    rank = request.prompt_length + request.limit
                case "priority":
                    rank = request.params.priority
                case _:
                    rank = 0
            heapq.heappush(self._heap, (rank, next(self._numbers), branch))

    def put_back(self, branch: Branch) -> None:
        """It is the next."""
        rank = branch.request.params.priority if self._admission == "priority" else -inf
        heapq.heappush(self._heap, (rank, -next(self._numbers), branch))

    def first(self) -> Branch | None:
        """Who is next; it goes on waiting. A finished one's place is skipped when it is reached."""
        while self._heap and self._heap[0][2].finished:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def take(self) -> Branch:
        """Who is next, as `first` told, and waits no more."""
        return heapq.heappop(self._heap)[2]

    def oldest(self) -> Branch | None:
        """Who came first. Time: O(waiting)."""
        return min((b for *_, b in self._heap if not b.finished), key=lambda b: b.request.arrived, default=None)

    def look(self) -> None:
        """Ranks by the prefixes that are cached now, where those order the queue."""
        if self._admission != "lpm" or len(self._heap) < 2:
            return
        found = dict[Request, int]()
        looked = []
        while self._heap and (len(found) < LOOKED_AT or self._heap[0][2].request in found):
            rank, number, branch = heapq.heappop(self._heap)
            request = branch.request
            if request not in found:
                found[request] = (
                    0 if request.unscored else len(self._pool.match(branch.tokens[:-1], root_of(branch.adapter))[0])
                )
            looked.append((rank if rank == -inf else -found[request], number, branch))
        for entry in looked:
            heapq.heappush(self._heap, entry)
