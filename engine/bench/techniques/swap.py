"""Preemption by swap beside recompute: long contexts, and a pool that holds three of them but not what they grow by."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from engine.bench.techniques.measured import Measured
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.core.engine import Engine
from engine.trace.measures import metrics
from engine.trace.measures.metrics import Metrics

REQUESTS, PROMPT, NEW = 8, 832, 96
HOLDS, SPARE = 3, 80  # prompts that the pool holds, and tokens beside
WORKLOAD = f"{REQUESTS} prompts of {PROMPT} tokens + {NEW}, a pool for {HOLDS} of them"


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    """Output tokens a second, and tokens computed twice."""
    found: dict[str, list[Metrics]] = {"recompute": [], "swap": []}
    with Engine(ModelSpec("demo"), threads=threads) as engine:
        pool = (HOLDS * PROMPT + SPARE) * engine.card.kv_token_bytes
        for turn in range(rounds + 1):
            for preemption, side in found.items():
                one = _played(engine, EngineConfig(max_running=REQUESTS, kv_memory=pool, preemption=preemption))
                if turn:  # the first warms up
                    side.append(one)
    without, with_it = found["recompute"], found["swap"]
    ratios = [s.output_throughput / r.output_throughput for r, s in zip(without, with_it, strict=True)]
    moved, took = with_it[0].swapped_blocks, statistics.median(s.swap_time for s in with_it)
    note = f"{with_it[0].preemptions} preemptions, {moved:,} blocks copied in {1e3 * took:.1f} ms"
    slow, fast = (statistics.median(m.output_throughput for m in side) for side in (without, with_it))
    name, ratio = "preemption by swap", statistics.median(ratios)
    yield Measured(name, WORKLOAD, "output tok/s", slow, fast, ratio, 1.0, note=note)
    often, seldom = (float(side[0].wasted_tokens) for side in (without, with_it))
    yield Measured(name, WORKLOAD, "tokens computed twice", often, seldom, seldom / max(often, 1.0), 0.1, at_most=True)


def _played(engine: Engine, config: EngineConfig) -> Metrics:
    params = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
    trace = engine.begin(config)
    streams = [engine.submit([5 + n] * PROMPT, params) for n in range(REQUESTS)]
    for stream in streams:
        stream.result()
    return metrics.measure(trace)
