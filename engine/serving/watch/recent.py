"""How a trace stands at a position a little behind its end, as few records: who joins late is told these, then what
came since."""

from itertools import accumulate

import numpy as np

from engine.trace.column import Array
from engine.trace.log import time_of
from engine.trace.records import (
    BlockEvent,
    Ended,
    Header,
    Kind,
    Notice,
    PromptScored,
    Record,
    Steered,
    Step,
    Submitted,
    SwapEvent,
    freeze,
)
from engine.trace.requests import RequestIndex, SampleView, State

GRACE = 8  # steps in which a request may have a row yet after its end: those that were launched before
COMES = (BlockEvent.TAKEN, BlockEvent.SHARED)
GONE = (State.PREEMPTED, State.SWAPPED)
Owner = tuple[int, int]  # request and sample


class Recent:
    """Fed with a trace's records in order. Knows the requests that are open, or still hold blocks, with their tokens,
    and who owns each block; nothing of what is over: its size is that of what runs."""

    def __init__(self) -> None:
        self.position = 0  # records that it was fed
        self._time = 0.0
        self._header: Header | None = None
        self._steered: Steered | None = None
        self._last: Step | None = None
        self._steps = 0
        self._index = RequestIndex()
        self._submitted: dict[int, Submitted] = {}
        self._scored: dict[int, PromptScored] = {}
        self._over: dict[int, int] = {}  # how many steps there were when it was
        self._tables: dict[Owner, dict[int, int]] = {}  # of each owner: blocks, in order, and their places
        self._cached: dict[int, int] = {}  # blocks without an owner that are kept, and their places
        self._hosts: dict[Owner, dict[int, int]] = {}
        self._kept: set[int] = set()  # host blocks that keep a prefix

    def begin(self, header: Header, position: int) -> None:
        """In place of feeding what is no longer there: nothing is open at this position."""
        self._header, self.position = header, position

    def feed(self, record: Record) -> None:
        self.position += 1
        self._time = max(self._time, time_of(record))
        match record:
            case Header():
                self._header = record
            case Steered():
                self._steered = record
            case Submitted():
                self._submitted[record.request] = record
                self._index.feed(record)
            case PromptScored():
                self._scored[record.request] = record
            case Step():
                self._steps += 1
                self._last = record
                self._index.feed(record)
                self._move_blocks(record)
                self._swap(record)
            case Ended():
                self._index.feed(record)
                if self._index.requests[record.request].ended is not None:
                    self._over[record.request] = self._steps
            case _:
                pass
        if self._over:
            self._forget()

    def _move_blocks(self, step: Step) -> None:
        columns = step.block_event, step.block, step.block_request, step.block_branch, step.block_place
        for event, block, request, branch, place in zip(*(column.tolist() for column in columns)):
            owner = request, branch
            if event in COMES:
                self._cached.pop(block, None)
                self._tables.setdefault(owner, {})[block] = place
                continue
            if (table := self._tables.get(owner)) is not None:
                place = table.pop(block, place)
                if not table:
                    del self._tables[owner]
            if event == BlockEvent.KEPT:
                self._cached[block] = place
            elif event == BlockEvent.FREED:
                self._cached.pop(block, None)

    def _swap(self, step: Step) -> None:
        columns = step.swap_event, step.swap_host, step.swap_request, step.swap_branch, step.swap_place
        for event, host, request, branch, place in zip(*(column.tolist() for column in columns)):
            if event >= SwapEvent.OFFLOADED:
                (self._kept.discard if event == SwapEvent.FORGOTTEN else self._kept.add)(host)
                continue
            held = self._hosts.setdefault((request, branch), {})
            if event == SwapEvent.OUT:
                held[host] = place
            else:
                held.pop(host, None)
            if not held:
                del self._hosts[request, branch]

    def _forget(self) -> None:
        """Lets go of requests of which no later record can speak."""
        due = [request for request, steps in self._over.items() if self._steps - steps > GRACE]
        if not due:
            return
        holds = {request for request, _ in (*self._tables, *self._hosts)}
        gone = [request for request in due if request not in holds]
        self._index.forget(gone)
        for request in gone:
            del self._over[request], self._submitted[request]
            self._scored.pop(request, None)

    # -- as records -----------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """A trace of its own that ends as this one stands: what was computed so far is told as one step, at the
        moment of the last record. Blocks that came back from preemption, candidates and drafts are not told, nor how
        far a beam's last block is filled that another beam's step had written: its next step says it."""
        if self._header is None:
            return []
        told: list[Record] = [self._header, *self._submitted.values(), *self._scored.values()]
        if self._steered is not None:
            told.append(self._steered)
        if (step := self._standing()) is not None:
            told.append(step)
        if (step := self._corrected()) is not None:
            told.append(step)
        for view in self._index.requests.values():
            for sample in view.samples:
                if sample.ended is not None and sample.reason is not None:
                    how = sample.reason, "", sample.error, sample.branch
                    told.append(Ended(self._time, view.request, *how, score=sample.score))
        words = "what was before this is known in part: the requests that ran then are shown as they stood"
        told.append(Notice(self._time, "info", words))
        return told

    def _samples(self) -> list[tuple[Owner, SampleView]]:
        views = self._index.requests.values()
        return [((view.request, sample.branch), sample) for view in views for sample in view.samples]

    def _standing(self) -> Step | None:
        """One step of all samples that were computed, with the tokens they have said, and all blocks."""
        known = [(owner, sample) for owner, sample in self._samples() if sample.tokens or sample.computed]
        events = self._events()
        if not known and not events:
            return None
        texts = [_said(sample) for _, sample in known]
        counts = [len(sample.tokens) for _, sample in known]
        begins = [0, *accumulate(len(text) for text in texts)]
        ends = [begin + end for begin, (_, sample) in zip(begins, known) for end in sample.text_ends]
        prefill = [sample.state is State.PREFILL for _, sample in known]
        computed = [0 if sample.state in GONE else sample.computed for _, sample in known]
        return self._step(
            request=_ints([owner[0] for owner, _ in known]),
            branch=_ints([owner[1] for owner, _ in known]),
            slot=_ints([sample.slot for _, sample in known]),
            first=_ints(computed),
            count=_ints([0] * len(known)),
            kind=np.array([Kind.PREFILL if one else Kind.DECODE for one in prefill], np.uint8),
            wasted=_ints([0] * len(known)),
            padding=_ints([0] * len(known)),
            reused=_ints([sample.reused for _, sample in known]),
            token_row=_ints([row for row, count in enumerate(counts) for _ in range(count)]),
            token=_ints([token for _, sample in known for token in sample.tokens]),
            logprob=np.array([value for _, sample in known for value in sample.logprobs], np.float32),
            text="".join(texts),
            text_end=_ints(ends),
            block_event=np.array([event[0] for event in events], np.uint8),
            block=_ints([event[1] for event in events]),
            block_request=_ints([event[2] for event in events]),
            block_branch=_ints([event[3] for event in events]),
            block_place=_ints([event[4] for event in events]),
        )

    def _events(self) -> list[tuple[int, int, int, int, int]]:
        """Each owner takes its blocks; who comes second to one shares it."""
        owned: set[int] = set()
        events = [(int(BlockEvent.KEPT), block, -1, -1, place) for block, place in self._cached.items()]
        for owner, table in self._tables.items():
            for block, place in table.items():
                kind = BlockEvent.SHARED if block in owned else BlockEvent.TAKEN
                events.append((int(kind), block, *owner, place))
                owned.add(block)
        return events

    def _corrected(self) -> Step | None:
        """A step in which those went that are not there now, with what they left on the host; and those with tokens
        whose prompt is computed, again, have a row that computes nothing."""
        gone = [owner for owner, sample in self._samples() if sample.state in GONE]
        hosts = [
            (SwapEvent.OUT, host, *owner, place) for owner, held in self._hosts.items() for host, place in held.items()
        ]
        hosts += [(SwapEvent.OFFLOADED, host, -1, -1, -1) for host in sorted(self._kept)]
        again = [
            (owner, sample) for owner, sample in self._samples() if sample.state is State.PREFILL and sample.tokens
        ]
        if not gone and not hosts and not again:
            return None
        none = _ints([0] * len(again))
        return self._step(
            request=_ints([owner[0] for owner, _ in again]),
            branch=_ints([owner[1] for owner, _ in again]),
            slot=_ints([sample.slot for _, sample in again]),
            first=_ints([sample.computed for _, sample in again]),
            count=none,
            kind=np.full(len(again), Kind.PREFILL, np.uint8),
            wasted=none,
            padding=none,
            reused=none,
            preempted=_ints([request for request, _ in gone]),
            preempted_branch=_ints([branch for _, branch in gone]),
            swap_event=np.array([host[0] for host in hosts], np.uint8),
            swap_host=_ints([host[1] for host in hosts]),
            swap_block=_ints([-1] * len(hosts)),
            swap_request=_ints([host[2] for host in hosts]),
            swap_branch=_ints([host[3] for host in hosts]),
            swap_place=_ints([host[4] for host in hosts]),
        )

    def _step(self, text: str = "", **columns: Array) -> Step:
        """With the counts of the last one; the columns that are not given are empty."""
        assert self._header is not None
        last, none = self._last, _ints([])
        rows = "request branch slot first count kind wasted token_row token text_end".split()
        given = {**dict.fromkeys(rows, none), "logprob": np.zeros(0, np.float32), **columns}
        counts = {"running": 0, "waiting": len(self._submitted), "free_blocks": self._header.blocks}
        names = "running waiting free_blocks cached_blocks kv_used kv_reserved kv_internal kv_external".split()
        if last is not None:
            counts = {name: getattr(last, name) for name in names}
        number = last.step if last is not None else 0
        frozen = {name: freeze(column) for name, column in given.items()}
        return Step(step=number, started=self._time, ended=self._time, text=text, seconds={}, **frozen, **counts)  # type: ignore[arg-type]


def _said(sample: SampleView) -> str:
    """Its text, as far as tokens have it."""
    return sample.text[: sample.text_ends[-1]] if sample.text_ends else ""


def _ints(values: list[int]) -> Array:
    return np.array(values, np.int32)
