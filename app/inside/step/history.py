"""What a step alone cannot tell: the prompts' lengths, which chunk of a prompt a row is, which blocks were evicted, who
was preempted before. Costs O(new) as a trace grows, and memory only for steps where there is something. No Qt in here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from app.inside.columns import whole
from engine.trace import BlockEvent, Header, Kind, Record, Step, Submitted, SwapEvent

Owner = tuple[int, int]  # a request and which of its samples


@dataclass(slots=True)
class _Run:
    """A prompt on its way through steps: their places, and the position that the next row begins at."""

    places: array[int] = field(default_factory=lambda: array("q"))
    reached: int = 0
    over: bool = False


class StepHistory:
    """Feed it a trace's records in order. A step's place is its number among all steps, from 0."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.steps = 0
        self._prompts: dict[int, tuple[int, int]] = {}  # tokens, samples
        self._runs: dict[Owner, list[_Run]] = {}
        self._open: dict[Owner, _Run] = {}
        self._preempted: dict[Owner, array[int]] = {}
        self._cached: set[int] = set()
        self._evicted: dict[int, tuple[int, ...]] = {}
        self._held: Counter[tuple[int, int]] = Counter()  # (block, request), of requests with several samples
        self._siblings: dict[int, tuple[int, ...]] = {}
        self._beams: set[int] = set()
        self._adapters: dict[int, str] = {}

    def take(self, records: Iterable[Record]) -> None:
        """The next records of the trace."""
        for record in records:
            match record:
                case Step():
                    self._step(record)
                    self.steps += 1
                case Submitted():
                    self._prompts[record.request] = len(record.token_ids), record.params.branches
                    if record.params.adapter:
                        self._adapters[record.request] = record.params.adapter
                    if record.params.beam_width > 1:
                        self._beams.add(record.request)
                case Header():
                    self.header = record
                case _:
                    pass

    @property
    def paged(self) -> bool:
        return self.header is None or self.header.config.paged

    def prompt(self, request: int) -> int | None:
        """How many tokens its prompt has."""
        return self._prompts.get(request, (None, 1))[0]

    def samples(self, request: int) -> int:
        """How many continuations of its prompt were asked for."""
        return self._prompts.get(request, (None, 1))[1]

    def adapter(self, request: int) -> str:
        """The name of the adapter that it goes through; "" for none."""
        return self._adapters.get(request, "")

    def beams(self, request: int) -> bool:
        """Whether its continuations are the beams of a search."""
        return request in self._beams

    def chunk(self, place: int, request: int, branch: int) -> tuple[int, int | None] | None:
        """Which chunk of a prompt the step computes, and of how many (None: not known yet); None where it is whole."""
        for run in self._runs.get((request, branch), ()):
            at = bisect_left(run.places, place)
            if at < len(run.places) and run.places[at] == place:
                return at + 1, len(run.places) if run.over else None
        return None

    def preempted_before(self, place: int, request: int, branch: int) -> bool:
        """Whether the sample was preempted in this step's record or an earlier one."""
        return bisect_right(self._preempted.get((request, branch), ()), place) > 0

    def evicted(self, place: int) -> tuple[int, ...]:
        """The blocks that were taken although a prefix was kept in them."""
        return self._evicted.get(place, ())

    def siblings(self, place: int) -> tuple[int, ...]:
        """Which block events of the step share a block with another sample of the same request."""
        return self._siblings.get(place, ())

    def _step(self, step: Step) -> None:
        place = self.steps
        for owner in preempted_samples(step):
            self._preempted.setdefault(owner, array("q")).append(place)
            self._open.pop(owner, None)
        if self.paged and len(step.request):
            self._prefills(step, place)
        if len(step.block_event):
            self._blocks(step, place)

    def _prefills(self, step: Step, place: int) -> None:
        rows = np.flatnonzero((step.kind == Kind.PREFILL) & (step.count > 0)).tolist()
        if not rows:
            return
        emitting = set(step.token_row.tolist())
        for row in rows:
            owner = int(step.request[row]), int(step.branch[row])
            first, end = int(step.first[row]), int(step.first[row] + step.count[row])
            run = self._open.pop(owner, None)
            if run is None or run.reached != first:
                run = _Run()
            run.places.append(place)
            run.reached, run.over = (
                end,
                row in emitting or (self.beams(owner[0]) and end >= (self.prompt(owner[0]) or 0)),
            )
            if not run.over:
                self._open[owner] = run
            if not run.over or len(run.places) > 1:
                runs = self._runs.setdefault(owner, [])
                if not runs or runs[-1] is not run:
                    runs.append(run)

    def _blocks(self, step: Step, place: int) -> None:
        several = any(self.samples(request) > 1 for request in np.unique(step.block_request).tolist())
        if not (several or self._cached or (step.block_event == BlockEvent.KEPT).any()):
            return
        cached, held = self._cached, self._held
        evicted: list[int] = []
        siblings: list[int] = []
        events = zip(step.block_event.tolist(), step.block.tolist(), step.block_request.tolist())
        for at, (event, block, request) in enumerate(events):
            many = several and self.samples(request) > 1
            match event:
                case BlockEvent.TAKEN | BlockEvent.SHARED:
                    if event == BlockEvent.TAKEN and block in cached:
                        evicted.append(block)
                    cached.discard(block)
                    if many:
                        if event == BlockEvent.SHARED and held[block, request]:
                            siblings.append(at)
                        held[block, request] += 1
                case BlockEvent.KEPT:
                    cached.add(block)
                case BlockEvent.FREED:
                    cached.discard(block)
            if many and event not in (BlockEvent.TAKEN, BlockEvent.SHARED):
                held[block, request] -= 1
                if not held[block, request]:
                    del held[block, request]
        if evicted:
            self._evicted[place] = tuple(evicted)
        if siblings:
            self._siblings[place] = tuple(siblings)


def preempted_samples(step: Step) -> list[Owner]:
    """Who was preempted in a step's record, in order."""
    branches = whole(step.preempted_branch, len(step.preempted))
    return list(zip(step.preempted.tolist(), branches.tolist()))


def swapped_blocks(step: Step, event: SwapEvent) -> Counter[Owner]:
    """How many blocks of each sample went to host memory, or came back, in a step's record; of (-1, -1) nobody's."""
    these = step.swap_event == event
    return Counter(zip(step.swap_request[these].tolist(), step.swap_branch[these].tolist()))
