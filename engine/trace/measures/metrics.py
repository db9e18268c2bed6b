"""The measures people steer by, computed from a trace with the definitions of `vllm bench serve`.

`formulas.py` has each one's formula in words. Everything is computed from the steps' columns at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np

from engine.trace.expert_load import imbalance, rank_loads
from engine.trace.measures.draft_speedup import draft_speedup
from engine.trace.measures.priority_class import PriorityClass, priority_classes
from engine.trace.measures.slo import Slo
from engine.trace.measures.spread import Spread
from engine.trace.measures.thinking import thinking
from engine.trace.presence import Presence
from engine.trace.records import Array, Ended, FinishReason, Header, Kind, Record, Step, Submitted
from engine.trace.requests import RequestView
from engine.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """One request: seconds, None where it did not get that far."""

    ttft: float | None
    tpot: float | None
    e2e: float | None
    prompt_tokens: int
    output_tokens: int

    @classmethod
    def of(cls, submitted: float, prompt_tokens: int, samples: Sequence[Sequence[float]]) -> RequestMetrics:
        """From the times of its samples' tokens: TTFT is that of the first sample, E2E that of the last."""
        begun = [times for times in samples if times]
        gaps = sum(len(times) - 1 for times in begun)
        return cls(
            ttft=min(times[0] for times in begun) - submitted if begun else None,
            tpot=sum(times[-1] - times[0] for times in begun) / gaps if gaps else None,
            e2e=max(times[-1] for times in begun) - submitted if begun else None,
            prompt_tokens=prompt_tokens,
            output_tokens=sum(map(len, begun)),
        )


@dataclass(frozen=True, slots=True)
class KvShares:
    """What the KV memory that was not simply free held, as shares of it that add up to 1: each the mean over time."""

    used: float = 0.0
    reserved: float = 0.0
    internal: float = 0.0
    external: float = 0.0

    @property
    def waste(self) -> float:
        return self.reserved + self.internal + self.external


@dataclass(frozen=True, slots=True)
class Metrics:
    """One run. Times in seconds, throughputs a second of wall time, from the first submission to the last token;
    shares from 0 to 1.

    `steps` are those that computed rows, `mean_rows` their rows on average; `row_steps` all rows of all steps, of which
    `wasted_rows` were for nothing. `wasted_tokens` were computed and thrown away, recomputation included.
    `outside_forward` is the share of step time not spent in the model's forward. `stalled_request` is the one that
    waited `longest_stall`. `drafts` are rows that verified drafted tokens; without any, `acceptance_rate`,
    `accepted_length` and `draft_speedup` are None. `activated_experts` is None where no step told of any,
    `expert_imbalance` where no ranks share experts out, `ttfo` and `thought_share` where nobody thinks,
    `gaps_within` where there is no target. `classes` are the requests by their priority, where these differ. `goodput`
    and `met` (requests) are None without an SLO, `cost` without the `price` of an hour, `kv` where no KV was held.
    `outside`: a server's, of which clients see what requests did; everything else is not known, and 0.
    """

    requests: int
    completed: int
    duration: float
    prompt_tokens: int
    output_tokens: int
    request_throughput: float
    output_throughput: float
    total_throughput: float
    ttft: Spread
    tpot: Spread
    itl: Spread
    e2e: Spread
    steps: int
    mean_rows: float
    preemptions: int
    wasted_tokens: int
    outside_forward: float
    goodput: float | None = None
    met: int | None = None
    average_latency: float = 0.0
    longest_stall: float = 0.0
    stalled_request: int | None = None
    slots: int = 0
    row_steps: int = 0
    wasted_rows: int = 0
    wasted_row_share: float = 0.0
    idle_share: float = 0.0
    computed_tokens: int = 0
    padding_tokens: int = 0
    padding_share: float = 0.0
    useful_share: float = 0.0
    reused_tokens: int = 0
    offloaded_tokens: int = 0
    swapped_blocks: int = 0
    swap_time: float = 0.0
    kv: KvShares | None = None
    drafts: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    acceptance_rate: float | None = None
    accepted_length: float | None = None
    draft_speedup: float | None = None
    activated_experts: float | None = None
    expert_imbalance: float | None = None
    gaps_within: float | None = None
    ttfo: Spread | None = None
    thought_share: float | None = None
    outside: bool = False
    classes: tuple[PriorityClass, ...] = ()
    price: float = 0.0

    @property
    def cost(self) -> float | None:
        """Of a million output tokens, in what `price` is given in."""
        return (
            self.price * self.duration / 3600 / self.output_tokens * 1e6 if self.price and self.output_tokens else None
        )

    def to_json(self) -> dict[str, Any]:
        return (
            asdict(self) | {"cost": self.cost} | {"kv": asdict(self.kv) | {"waste": self.kv.waste} if self.kv else None}
        )


@dataclass(frozen=True, slots=True)
class Timings:
    """All requests' times, in columns in order of id; seconds, NaN where a request did not get that far.

    `itl` is the 99th percentile of a request's gaps. `gap` are the seconds between consecutive emissions of one
    sample, of all requests, with `gap_request` (index into the columns) and `gap_ended`, from the trace's start.
    """

    request: Array
    submitted: Array
    ttft: Array
    tpot: Array
    itl: Array
    e2e: Array
    prompt_tokens: Array
    output_tokens: Array
    completed: Array
    gap: Array
    gap_request: Array
    gap_ended: Array

    def meeting(self, slo: Slo) -> Array:
        """Which completed requests keep every limit; one that a request has no value for is kept."""
        good = self.completed.copy()
        for name, limit in slo.limits.items():
            good &= ~(getattr(self, name) > limit)
        return good


def request_metrics(view: RequestView) -> RequestMetrics:
    """One request's, of all its samples."""
    return RequestMetrics.of(view.submitted, len(view.prompt_ids), [sample.token_times for sample in view.samples])


def timings(trace: Trace) -> Timings:
    """The times of every request that a trace holds so far."""
    return _timings(_Log(trace.records))


def measure(trace: Trace, slo: Slo | None = None, first: int = 0, price: float = 0.0) -> Metrics:
    """The metrics of all that a trace holds so far, or of what it holds from its record `first` on, a submission while
    no request was there. `price` of an hour of what ran it, in any currency; 0: it is not known."""
    log = _Log(trace.records[first:] if first else trace.records)
    times, steps = _timings(log), log.steps
    requests, output = len(times.request), int(times.output_tokens.sum())
    prompt, completed = int(times.prompt_tokens.sum()), int(times.completed.sum())
    begun = float(times.submitted.min()) if requests else 0.0
    ended = np.nanmax(times.submitted + times.e2e) if np.isfinite(times.e2e).any() else begun
    duration = float(ended) - begun

    def a_second(number: int) -> float:
        return number / duration if duration > 0 else 0.0

    taken, kind = sum(s.rows for s in steps), log.column("kind")  # places, those of prompts under way too
    rows = taken - sum(s.under_way for s in steps)
    count, wasted, padding = log.column("count"), log.column("wasted"), log.column("padding")
    for_nothing = int(((kind == Kind.HELD) | ((wasted >= count) & (count > 0))).sum())
    padded, thrown_away = int(padding.sum()), int(wasted.sum())
    computed = int(count.sum()) + padded
    header = trace.header if first else log.header
    slots = header.config.slots if header is not None else int(log.column("slot").max(initial=-1)) + 1
    places = slots * len(steps)
    samples = sum(s.params.branches for s in log.submitted)
    forward = sum(s.seconds.get("forward", 0.0) for s in steps)
    busy = sum(sum(s.seconds.values()) for s in steps)
    stall = int(times.gap.argmax()) if len(times.gap) else None
    drafting = [s for s in steps if len(s.drafted)]
    drafts = sum(int(np.count_nonzero(s.drafted)) for s in drafting)
    drafted, accepted = (sum(int(getattr(s, name).sum()) for s in drafting) for name in ("drafted", "accepted"))
    met = int(times.meeting(slo).sum()) if slo is not None and slo.limits else None
    texts = chain((s.text for s in log.all_steps), (e.text for e in log.ended))
    thought, answered = thinking(log.submitted, texts, trace)
    return Metrics(
        ttfo=Spread.of(answered) if answered else None,
        thought_share=thought / output if thought else None,
        price=price,
        requests=requests,
        completed=completed,
        duration=duration,
        prompt_tokens=prompt,
        output_tokens=output,
        request_throughput=a_second(completed),
        output_throughput=a_second(output),
        total_throughput=a_second(output + prompt),
        ttft=Spread.of(times.ttft[np.isfinite(times.ttft)]),
        tpot=Spread.of(times.tpot[np.isfinite(times.tpot)]),
        itl=Spread.of(times.gap),
        e2e=Spread.of(times.e2e[np.isfinite(times.e2e)]),
        steps=len(steps),
        mean_rows=rows / len(steps) if steps else 0.0,
        preemptions=sum(len(s.preempted) for s in log.all_steps),
        wasted_tokens=thrown_away,
        outside_forward=1 - forward / busy if busy else 0.0,
        goodput=a_second(met) if met is not None else None,
        met=met,
        average_latency=min(slots, samples) * duration / output if output else 0.0,
        longest_stall=float(times.gap[stall]) if stall is not None else 0.0,
        stalled_request=int(times.request[times.gap_request[stall]]) if stall is not None else None,
        slots=slots,
        row_steps=rows,
        wasted_rows=for_nothing,
        wasted_row_share=for_nothing / rows if rows else 0.0,
        idle_share=max(0.0, 1 - taken / places) if places else 0.0,
        computed_tokens=computed,
        padding_tokens=padded,
        padding_share=padded / computed if computed else 0.0,
        useful_share=1 - (padded + thrown_away) / computed if computed else 0.0,
        reused_tokens=int(log.column("reused").sum()),
        offloaded_tokens=sum(len(s.found_below) for s in log.all_steps) * (header.config.block_size if header else 0),
        swapped_blocks=sum(s.moved_blocks for s in log.all_steps),
        swap_time=sum(s.swapping for s in log.all_steps),
        kv=_kv_shares(log.all_steps, np.array(log.present)),
        drafts=drafts,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        acceptance_rate=accepted / drafted if drafted else None,
        accepted_length=1 + accepted / drafts if drafts else None,
        draft_speedup=draft_speedup(steps) if drafts else None,
        activated_experts=_activated_experts(steps),
        gaps_within=_gaps_within(header, times.gap),
        expert_imbalance=_expert_imbalance(header, steps),
        outside=header is not None and bool(header.outside),
        classes=priority_classes(log.submitted, times.request, times.ttft, times.e2e),
    )


def _activated_experts(steps: Sequence[Step]) -> float | None:
    """The mean over the steps that told."""
    shares = [share for s in steps if (share := s.activated) is not None]
    return float(np.mean(shares)) if shares else None


def _expert_imbalance(header: Header | None, steps: Sequence[Step]) -> float | None:
    """The mean over the steps that told, where ranks share the experts out."""
    if header is None or not header.rank_experts:
        return None
    shape = -1, header.model.experts
    found = [imbalance(rank_loads(header, s.expert.reshape(shape))) for s in steps if s.expert.any()]
    return float(np.mean(found)) if found else None


def _gaps_within(header: Header | None, gaps: Array) -> float | None:
    """Of the target that the run began with."""
    if header is None or header.config.target_itl is None or not len(gaps):
        return None
    return float((gaps <= header.config.target_itl).mean())


class _Log:
    """A trace's records sorted by kind, in one pass; `steps` are those of `all_steps` that computed rows."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.header: Header | None = None
        self.submitted: list[Submitted] = []
        self.ended: list[Ended] = []
        self.all_steps: list[Step] = []
        self.present: list[float] = []  # seconds with requests until each of them was over
        presence = Presence()
        for record in records:
            presence.feed(record)
            match record:
                case Step():
                    self.all_steps.append(record)
                    self.present.append(presence.total)
                case Submitted():
                    self.submitted.append(record)
                case Ended():
                    self.ended.append(record)
                case Header():
                    self.header = record
                case _:
                    pass
        self.steps = [s for s in self.all_steps if s.rows]

    def column(self, name: str) -> Array:
        """A row's column over all steps, as int64; zeros where a step left it out."""
        parts = ((step, getattr(step, name)) for step in self.steps)
        return _concatenated([part if len(part) else np.zeros(step.rows, np.int64) for step, part in parts])


def _timings(log: _Log) -> Timings:
    submissions = sorted(log.submitted, key=lambda s: s.request)
    request = np.array([s.request for s in submissions], np.int64)
    submitted = np.array([s.time for s in submissions], float)
    samples = np.array([s.params.branches for s in submissions], np.int64)
    size = len(request)

    prompt = np.array([len(s.token_ids) for s in submissions], np.int64)
    told = [e for e in log.ended if e.prompt_tokens]
    prompt[np.searchsorted(request, np.array([e.request for e in told], np.int64))] = [e.prompt_tokens for e in told]

    # Tokens in order of request, sample and time.
    steps = log.steps
    rows, tokens = np.array([s.rows for s in steps], np.int64), np.array([len(s.token) for s in steps], np.int64)
    first_row = np.cumsum(rows) - rows
    row = np.repeat(first_row, tokens) + _concatenated([s.token_row for s in steps])
    time = np.repeat(np.array([s.ended for s in steps], float), tokens)
    owner = np.searchsorted(request, log.column("request")[row])
    sample = owner * (int(samples.max(initial=1)) + 1) + log.column("branch")[row]
    delivered = [e for e in log.ended if len(e.token)]  # with their end: a batch held them back and was cut short
    if delivered:
        late = np.array([len(e.token) for e in delivered], np.int64)
        late_owner = np.searchsorted(request, np.array([e.request for e in delivered], np.int64))
        late_branch = np.array([e.branch for e in delivered], np.int64)
        time = np.concatenate([time, np.repeat(np.array([e.time for e in delivered], float), late)])
        owner = np.concatenate([owner, np.repeat(late_owner, late)])
        late_sample = late_owner * (int(samples.max(initial=1)) + 1) + late_branch
        sample = np.concatenate([sample, np.repeat(late_sample, late)])
    order = np.argsort(sample, kind="stable")
    owner, sample, time = owner[order], sample[order], time[order]

    begins = np.flatnonzero(np.diff(sample, prepend=-1))
    ends = np.flatnonzero(np.diff(sample, append=-1))
    whose = owner[begins]
    first, last = np.full(size, np.nan), np.full(size, np.nan)
    np.fmin.at(first, whose, time[begins])
    np.fmax.at(last, whose, time[ends])
    decoding = np.bincount(whose, time[ends] - time[begins], size)
    later_tokens = np.bincount(whose, ends - begins, size)

    # Tokens that one step gave are one emission.
    gap = np.diff(time)
    real = (np.diff(sample) == 0) & (gap > 0)
    gap, gap_request, gap_ended = gap[real], owner[1:][real], time[1:][real]
    itl = np.full(size, np.nan)
    borders = np.searchsorted(gap_request, np.arange(size + 1))
    for i in np.flatnonzero(np.diff(borders)):
        itl[i] = np.percentile(gap[borders[i] : borders[i + 1]], 99)

    finished = [e.request for e in log.ended if e.reason in (FinishReason.STOP, FinishReason.LENGTH)]
    over = np.bincount(np.searchsorted(request, np.array(finished, np.int64)), minlength=size)
    return Timings(
        request=request,
        submitted=submitted,
        ttft=first - submitted,
        tpot=np.divide(decoding, later_tokens, out=np.full(size, np.nan), where=later_tokens > 0),
        itl=itl,
        e2e=last - submitted,
        prompt_tokens=prompt,
        output_tokens=np.bincount(owner, minlength=size),
        completed=over >= samples,
        gap=gap,
        gap_request=gap_request,
        gap_ended=gap_ended,
    )


def _concatenated(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


def _kv_shares(steps: Sequence[Step], present: Array) -> KvShares | None:
    """Each step's shares last until the next one's end, as long as requests are there; the last counts only when it is
    alone."""
    tokens = np.array([(s.kv_used, s.kv_reserved, s.kv_internal, s.kv_external) for s in steps], float).reshape(-1, 4)
    total = tokens.sum(axis=1)
    weight = np.append(np.diff(present), 0.0) if len(steps) > 1 else np.ones(len(steps))
    weight[total == 0] = 0
    if not weight.sum():
        return None
    shares = tokens[weight > 0] / total[weight > 0, None]
    used, reserved, internal, external = np.average(shares, axis=0, weights=weight[weight > 0]).tolist()
    return KvShares(used, reserved, internal, external)
