"""Counts what the trace's records tell, as they arrive."""

import threading
from collections import Counter
from dataclasses import dataclass, field

from engine.serving.metrics import buckets
from engine.serving.metrics.buckets import Buckets
from engine.trace.records import Ended, FinishReason, Header, Kind, Record, Refusal, Step, Submitted
from engine.trace.trace import Trace

REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "abort",
    FinishReason.ERROR: "error",
}
CAPACITY = (Refusal.NO_SLOT, Refusal.NO_BLOCKS, Refusal.BUDGET, Refusal.PACE)  # others are the mode's choice
MOST_LIMIT = 1 << 40  # tokens: some ask for more than a float can hold
OPEN_CONTEXT = 131_072  # tokens to which counts are told, of a model that does not say


@dataclass(slots=True)
class _Open:
    """A request that is not over. Times are the trace's; of each sample its first and latest token's, and how many."""

    submitted: float
    prompt: int
    samples: int
    scheduled: float | None = None
    found: bool = False  # what of its prompt was in the cache is counted
    below: int = 0  # tokens that came back from host memory
    answered: bool = False
    first: dict[int, float] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)
    tokens: Counter[int] = field(default_factory=Counter)


class Observer:
    """A listener of the trace: O(rows) a step, on the thread that the records arrive on. What it has is read under
    `lock`. Like vLLM's, times and ends are of samples, and a request's prompt counts with its first token."""

    def __init__(self, trace: Trace, model: str) -> None:
        self.model, self.lock = model, threading.Lock()
        header: Header = trace.header
        self.header, context = header, header.model.context or OPEN_CONTEXT
        self._open: dict[int, _Open] = {}
        self.samples = 0  # that are not over
        self.running, self.free, self.capacity = 0, header.blocks, True
        self.prompt_tokens = self.generated = self.preemptions = self.looked_up = self.reused = 0
        self.from_host = 0  # of those reused
        self.ends: Counter[str] = Counter()
        self.step_tokens = Buckets(buckets.STEP_TOKENS)
        self.ttft, self.itl, self.tpot = Buckets(buckets.TTFT), Buckets(buckets.TOKEN), Buckets(buckets.TOKEN)
        self.queue, self.prefill, self.decode, self.inference, self.e2e = (Buckets(buckets.REQUEST) for _ in range(5))
        self.prompts, self.answers, self.limits = (Buckets(buckets.counts_to(context)) for _ in range(3))
        self.ns = Buckets(buckets.SAMPLES)
        trace.listen(self)

    def __call__(self, record: Record) -> None:
        match record:
            case Step():
                with self.lock:
                    self._step(record)
            case Submitted():
                with self.lock:
                    params, prompt = record.params, len(record.token_ids)
                    self._open[record.request] = _Open(record.time, prompt, params.branches)
                    self.samples += params.branches
                    self.ns.add(params.branches)
                    self.limits.add(min(params.max_tokens, MOST_LIMIT))
            case Ended():
                with self.lock:
                    self._end(record)
            case _:
                pass

    @property
    def waiting(self) -> int:
        return self.samples - min(self.running, self.samples)

    def _step(self, step: Step) -> None:
        self.running, self.free = step.running, step.free_blocks + step.cached_blocks
        self.preemptions += len(step.preempted)
        for request in step.found_below.tolist():  # at depth 1 a record before that of its row
            if (one := self._open.get(request)) is not None:
                one.below += self.header.config.block_size
        if step.refused_reason:
            self.capacity = step.refused_reason[0] in CAPACITY
        if not step.rows:
            return
        self.step_tokens.add(int(step.count.sum()))
        requests, branches = step.request.tolist(), step.branch.tolist()
        for row in (step.kind == Kind.PREFILL).nonzero()[0].tolist():
            if (one := self._open.get(requests[row])) is not None:
                if one.scheduled is None:
                    one.scheduled = step.started
                    self.queue.add(step.started - one.submitted)
                    self.looked_up += one.prompt if self.header.config.prefix_caching else 0
                if not one.found and step.count[row]:  # of a prompt under way nothing is told yet
                    one.found = True
                    self.reused += int(step.reused[row])
                    self.from_host += min(one.below, int(step.reused[row]))
        self.generated += len(step.token)
        gaps, now = [], step.ended
        for row in step.token_row.tolist():
            one, sample = self._open.get(requests[row]), branches[row]
            if one is None:
                continue
            one.tokens[sample] += 1
            if sample not in one.last:
                one.first[sample] = now
                self._first(one, now)
            elif one.last[sample] != now:  # tokens that one step gave are one delivery
                gaps.append(now - one.last[sample])
            one.last[sample] = now
        self.itl.add(*gaps)

    def _first(self, one: _Open, now: float) -> None:
        if one.answered:
            return
        one.answered = True
        self.ttft.add(now - one.submitted)
        self.prompt_tokens += one.prompt
        if one.scheduled is not None:
            self.prefill.add(now - one.scheduled)

    def _end(self, ended: Ended) -> None:
        one = self._open.get(ended.request)
        if one is None:
            return
        sample = ended.branch
        self.samples -= 1
        one.samples -= 1
        if not one.samples:
            del self._open[ended.request]
        self.ends[REASONS[ended.reason]] += 1
        self.e2e.add(ended.time - one.submitted)
        self.prompts.add(one.prompt)
        self.answers.add(one.tokens[sample])
        if sample in one.last:
            decoding, later = one.last[sample] - one.first[sample], one.tokens[sample] - 1
            self.decode.add(decoding)
            if one.scheduled is not None:
                self.inference.add(one.last[sample] - one.scheduled)
            if later:
                self.tpot.add(decoding / later)
