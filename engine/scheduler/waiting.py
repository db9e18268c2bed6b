"""The branches that wait for a slot, and which of them is next."""

import heapq
from collections import Counter
from collections.abc import Iterable
from itertools import count
from math import inf

from engine.scheduler.block_pool import BlockPool, root_of
from engine.scheduler.request import Branch, Request

LOOKED_AT = 128  # requests at least, whose cached prefixes are looked up at once: it takes time in each step
ANSWERED = 2  # what a token of an answer costs, in tokens of a prompt (Sheng et al. 2024, section 4.1)
Entry = tuple[float, int, Branch]  # by rank, then by when they came
Queue = tuple[int, str]  # of which adapter, where they are kept apart, and of which label, where shares are fair


class Waiting:
    """Who waits, in the order that `EngineConfig.admission` says. Those that ran before, and made way or were taken
    back, come before all that never ran, by priority before those of the same number, the one admitted first before the
    others: so that one ends, whatever the order is. The branches of a request stay together.

    Where shares are "fair" the requests of each label are a queue of their own, and whose requests were served the
    fewest tokens is next: a virtual token counter (Sheng et al. 2024, Fairness in Serving Large Language Models,
    algorithm 2). Nobody saves up for later: a label that comes back counts from what the least served that waits has.

    Where adapters are kept `apart`, those of each are queues of their own, and while `adapter` is set only they are
    next, unless `outranked`: somebody waits for another one, and has a lower priority number, or was passed over `most`
    times since that one is served."""

    def __init__(self, admission: str, pool: BlockPool, apart: bool = False, most: int = 1) -> None:
        self._admission, self._pool, self._apart, self._most = admission, pool, apart, most
        self.fair = admission == "fair"
        self._passed = 0
        self._heaps: dict[Queue, list[Entry]] = {}
        self._numbers = count(1)
        self._served: Counter[str] = Counter()
        self._last = ""  # the label that was served last
        self.adapter: int | None = None

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
            if self.fair:
                self._catch_up(request.label)
            heapq.heappush(self._heap_of(branch), (rank, next(self._numbers), branch))

    def put_back(self, branch: Branch) -> None:
        """It is the next."""
        rank = branch.request.params.priority if self._admission == "priority" else -inf
        heapq.heappush(self._heap_of(branch), (rank, -next(self._numbers), branch))

    def first(self) -> Branch | None:
        """Who is next; it goes on waiting. A finished one's place is skipped when it is reached."""
        heap = self._next()
        return heap[0][2] if heap else None

    def take(self) -> Branch:
        """Who is next, as `first` told, and waits no more."""
        own = self._next()
        rank, _, branch = heapq.heappop(own)
        if self._apart:
            others = any(adapter != branch.adapter for adapter, _ in self._waited())
            self._passed = 0 if self.adapter is None else self._passed + others
        if self.fair and rank != -inf:
            self._last = branch.request.label
            self._served[self._last] += 0 if branch.index else branch.request.prompt_length
        return branch

    def serve(self, label: str, tokens: int) -> None:
        """So many tokens of answers were given to requests of this label."""
        self._served[label] += ANSWERED * tokens

    @property
    def outranked(self) -> bool:
        """Whether those of `adapter` have to wait for others."""
        own, others = self._next(), [heap for (adapter, _), heap in self._waited().items() if adapter != self.adapter]
        if self.adapter is None or not others:
            return False
        urgent = self._admission == "priority" and own and min(heap[0][0] for heap in others) < own[0][0]
        return bool(urgent) or self._passed >= self._most

    def oldest(self) -> Branch | None:
        """Who came first. Time: O(waiting)."""
        waiting = (branch for heap in self._heaps.values() for *_, branch in heap if not branch.finished)
        return min(waiting, key=lambda b: b.request.arrived, default=None)

    def look(self) -> None:
        """Ranks by the prefixes that are cached now, where those order the queue."""
        if self._admission == "lpm":
            for heap in [self._next()] if self.adapter is not None else self._waited().values():
                if len(heap) > 1:
                    self._look(heap)

    def _look(self, heap: list[Entry]) -> None:
        found = dict[Request, int]()
        looked = []
        while heap and (len(found) < LOOKED_AT or heap[0][2].request in found):
            rank, number, branch = heapq.heappop(heap)
            request = branch.request
            if request not in found:
                cached, below = self._pool.match_below(branch.tokens[:-1], root_of(branch.adapter))
                found[request] = 0 if request.unscored else len(cached) + len(below)
            looked.append((rank if rank == -inf else -found[request], number, branch))
        for entry in looked:
            heapq.heappush(heap, entry)

    def _catch_up(self, label: str) -> None:
        waiting = {other for _, other in self._waited()}
        if label not in waiting:
            least = min((self._served[other] for other in waiting), default=self._served[self._last])
            self._served[label] = max(self._served[label], least)

    def _heap_of(self, branch: Branch) -> list[Entry]:
        queue = branch.adapter if self._apart else 0, branch.request.label if self.fair else ""
        return self._heaps.setdefault(queue, [])

    def _next(self) -> list[Entry]:
        """The queue whose first one is next, none of its first ones finished; an empty one where nobody waits."""
        waited = self._waited()
        if self.adapter is not None:
            waited = {queue: heap for queue, heap in waited.items() if queue[0] == self.adapter}
        found = min(waited.items(), key=self._turn, default=None)
        return found[1] if found is not None else []

    def _turn(self, waited: tuple[Queue, list[Entry]]) -> tuple[float, int, int]:
        """The lowest is next: by the first one's rank, by what its label was served, by when it came."""
        (_, label), heap = waited
        rank, number, _ = heap[0]
        return rank, self._served[label] if self.fair else 0, number

    def _waited(self) -> dict[Queue, list[Entry]]:
        """The queues in which somebody waits, which are all that are kept."""
        for heap in self._heaps.values():
            while heap and heap[0][2].finished:
                heapq.heappop(heap)
        if not all(self._heaps.values()):
            self._heaps = {queue: heap for queue, heap in self._heaps.items() if heap}
        return self._heaps
