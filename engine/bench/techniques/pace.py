"""Gaps held within a target: what long prompts do to those who read along, without it, with it, and beside the best
budget that a person could have found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from engine.bench.techniques.measured import Measured
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.config.submission import Submission
from engine.core.engine import Engine
from engine.trace.measures import metrics
from engine.trace.measures.metrics import Metrics

READERS, NEW = 8, 120
DOCUMENTS, PROMPT, SUMMARY = 24, 640, 8
WORKLOAD = f"{READERS} answers of {NEW} tokens, {DOCUMENTS} prompts of {PROMPT} + {SUMMARY} beside them"
BUDGETS = (16, 32, 64, 128, 256)
STEPS = 4  # of the readers alone that the target is worth
GAP_GOAL, RATE_GOAL = 0.25, 0.9


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    """Of the demo model. The target is four times what a step of the readers alone takes."""
    params = SamplingParams(temperature=0, ignore_eos=True)
    readers = [Submission([5 + n] * 16, params.with_(max_tokens=NEW)) for n in range(READERS)]
    documents = [Submission([25 + n] * PROMPT, params.with_(max_tokens=SUMMARY)) for n in range(DOCUMENTS)]
    with Engine(ModelSpec("demo"), threads=threads) as engine:
        target = STEPS * _played(engine, readers, EngineConfig("chunked")).itl.p50
        sides = [EngineConfig("chunked"), EngineConfig("chunked", target_itl=target)]
        sides += [EngineConfig("chunked", min(budget, READERS + DOCUMENTS), budget) for budget in BUDGETS]
        found = [[_played(engine, readers + documents, side) for side in sides] for _ in range(rounds)]
    whole, paced, *fixed = zip(*found, strict=True)
    held, _ = _middle(paced)
    ratio = median(b.itl.p95 / a.itl.p95 for a, b in zip(whole, paced, strict=True))
    note = f"target {1e3 * target:.3g} ms, {median(m.gaps_within or 0.0 for m in paced):.1%} of the gaps within it"
    name, before = "target ITL", 1e3 * _middle(whole)[0]
    yield Measured(name, WORKLOAD, "ms a gap, p95", before, 1e3 * held, ratio, GAP_GOAL, at_most=True, note=note)
    kept = {budget: side for budget, side in zip(BUDGETS, fixed, strict=True) if _middle(side)[0] <= target}
    if not kept:
        return
    best = max(kept, key=lambda budget: _middle(kept[budget])[1])
    ratio = median(b.total_throughput / a.total_throughput for a, b in zip(kept[best], paced, strict=True))
    note = f"without: the best of the fixed budgets that keep it, {best} tokens"
    rates = _middle(kept[best])[1], _middle(paced)[1]
    yield Measured(name, WORKLOAD, "tok/s, prompts and answers", *rates, ratio, RATE_GOAL, note=note)


def _played(engine: Engine, submissions: Sequence[Submission], config: EngineConfig) -> Metrics:
    trace = engine.begin(config)
    for stream in engine.submit_many(submissions):
        stream.result()
    return metrics.measure(trace)


def _middle(side: Sequence[Metrics]) -> tuple[float, float]:
    """Seconds of the 95th percentile of the gaps, and tokens a second."""
    return median(m.itl.p95 for m in side), median(m.total_throughput for m in side)
