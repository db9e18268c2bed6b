"""The measures people steer by, computed from a trace with the definitions of `vllm bench serve`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine.trace.records import FinishReason
from engine.trace.trace import RequestView, Trace


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of a sample; all zero when it is empty."""

    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        sample = np.fromiter(values, float)
        if not len(sample):
            return cls()
        p50, p95, p99 = np.percentile(sample, (50, 95, 99))
        return cls(float(sample.mean()), float(p50), float(p95), float(p99))


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """One request: seconds, None where it did not get that far."""

    ttft: float | None
    tpot: float | None
    e2e: float | None
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Metrics:
    """One run. Times in seconds, throughputs a second of wall time, from the first submission to the last token.

    ttft = first token - submit; tpot = (last - first token) / (n - 1); itl = every gap between emissions, pooled;
    e2e = last token - submit. `outside_forward` is the share of step time not spent in the model's forward;
    `wasted_tokens` were computed and thrown away; `mean_rows` is rows a step.
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def request_metrics(view: RequestView) -> RequestMetrics:
    """TTFT, TPOT and E2E latency of one request."""
    times = view.token_times
    return RequestMetrics(
        ttft=times[0] - view.submitted if times else None,
        tpot=(times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None,
        e2e=times[-1] - view.submitted if times else None,
        prompt_tokens=len(view.prompt_ids),
        output_tokens=len(view.tokens),
    )


def gaps(view: RequestView) -> np.ndarray[Any, Any]:
    """Seconds between consecutive emissions; tokens emitted by one step are one emission."""
    return np.diff(np.unique(np.asarray(view.token_times)))


def measure(trace: Trace) -> Metrics:
    """The metrics of all that a trace holds so far."""
    views = list(trace.requests.values())
    steps = trace.steps
    each = [request_metrics(v) for v in views]
    output = sum(m.output_tokens for m in each)
    prompt = sum(m.prompt_tokens for m in each)
    begun = min((v.submitted for v in views), default=0.0)
    duration = max((v.token_times[-1] for v in views if v.token_times), default=begun) - begun
    completed = [v for v in views if v.reason in (FinishReason.STOP, FinishReason.LENGTH)]
    per_second = 1 / duration if duration > 0 else 0.0
    forward = sum(s.seconds.get("forward", 0.0) for s in steps)
    busy = sum(sum(s.seconds.values()) for s in steps)
    return Metrics(
        requests=len(views),
        completed=len(completed),
        duration=duration,
        prompt_tokens=prompt,
        output_tokens=output,
        request_throughput=len(completed) * per_second,
        output_throughput=output * per_second,
        total_throughput=(output + prompt) * per_second,
        ttft=Spread.of(m.ttft for m in each if m.ttft is not None),
        tpot=Spread.of(m.tpot for m in each if m.tpot is not None),
        itl=Spread.of(np.concatenate([gaps(v) for v in views]) if views else []),
        e2e=Spread.of(m.e2e for m in each if m.e2e is not None),
        steps=len(steps),
        mean_rows=sum(s.rows for s in steps) / len(steps) if steps else 0.0,
        preemptions=sum(v.preemptions for v in views),
        wasted_tokens=int(sum(s.wasted.sum() for s in steps)),
        outside_forward=1 - forward / busy if busy else 0.0,
    )


def table(metrics: Metrics) -> str:
    """The metrics as the text table that the command line prints."""

    def seconds(value: float) -> str:
        return f"{value * 1e3:,.1f} ms" if value < 10 else f"{value:,.2f} s"

    lines = [
        f"{'requests':<24}{metrics.completed:,} of {metrics.requests:,} completed in {metrics.duration:,.2f} s",
        f"{'tokens':<24}{metrics.prompt_tokens:,} in, {metrics.output_tokens:,} out",
        f"{'output throughput':<24}{metrics.output_throughput:,.1f} tok/s",
        f"{'total throughput':<24}{metrics.total_throughput:,.1f} tok/s",
        f"{'request throughput':<24}{metrics.request_throughput:,.2f} req/s",
        f"{'steps':<24}{metrics.steps:,} with {metrics.mean_rows:,.1f} rows on average",
        f"{'outside the forward':<24}{100 * metrics.outside_forward:,.1f} % of step time",
        f"{'preempted, wasted':<24}{metrics.preemptions:,} requests, {metrics.wasted_tokens:,} tokens",
        "",
        f"{'':<24}{'mean':>12}{'p50':>12}{'p95':>12}{'p99':>12}",
    ]
    for name, label in (("ttft", "TTFT"), ("tpot", "TPOT"), ("itl", "ITL"), ("e2e", "E2E latency")):
        spread: Spread = getattr(metrics, name)
        cells = "".join(f"{seconds(v):>12}" for v in (spread.mean, spread.p50, spread.p95, spread.p99))
        lines.append(f"{label:<24}{cells}")
    return "\n".join(lines)
