"""Prefixes that are offloaded beside those that are forgotten: applications in turn, and a pool for a few of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from engine.bench.cpu.quantized import SHAPE, save_subject
from engine.bench.techniques.measured import Measured
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.core.engine import Engine
from engine.trace.measures import metrics
from engine.trace.measures.metrics import Metrics

APPS, OPENING, NEW, TURNS = 6, 768, 8, 3
HOLDS = 3  # of them in the pool
SOONER = 0.3  # of the time to the first token
WORKLOAD = f"{APPS} applications in turn, {OPENING} tokens each alike, a pool for {HOLDS}"


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    """The time to the first token of every prompt whose beginning was sent before, of the demo model and of a larger
    random one, whose weights take longer to multiply with and whose K and V are more to copy."""
    with TemporaryDirectory() as folder:
        random = ModelSpec(str(save_subject(Path(folder), SHAPE)), dtype="bfloat16")
        for title, spec in (("demo, float32", ModelSpec("demo")), ("random, 104 M, bfloat16", random)):
            with Engine(spec, threads=threads) as engine:
                yield _measured(engine, title, rounds)


def _measured(engine: Engine, title: str, rounds: int) -> Measured:
    memory = HOLDS * (OPENING + 64) * engine.card.kv_token_bytes
    sides = [
        EngineConfig(max_running=1, kv_memory=memory, prefix_caching=True, offload_prefixes=offload)
        for offload in (False, True)
    ]
    found = [[_played(engine, config) for config in sides] for _ in range(rounds + 1)][1:]  # the first warms up
    waits = [[1e3 * wait for _, wait in each] for each in found]
    without, with_it = (median(side) for side in zip(*waits, strict=True))
    ratio = median(kept / forgotten for forgotten, kept in waits)
    kept = [each[1][0] for each in found]
    copied, took = kept[0].swapped_blocks, median(one.swap_time for one in kept)
    block = engine.config.block_size * engine.card.kv_token_bytes
    rate = copied * block / took / 1e9
    note = f"{kept[0].offloaded_tokens:,} tokens from the host; {copied:,} blocks copied at {rate:.1f} GB/s"
    workload, what = f"{WORKLOAD}, {title}", "ms to the first token, p50 of those sent before"
    return Measured("offloaded prefixes", workload, what, without, with_it, ratio, SOONER, at_most=True, note=note)


def _played(engine: Engine, config: EngineConfig) -> tuple[Metrics, float]:
    """The run, and the median of the times to the first tokens from the second turn on."""
    trace, params = engine.begin(config), SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
    for turn in range(TURNS):
        for app in range(APPS):
            engine.submit([5 + app] * OPENING + [90 + turn] * 4, params).result()
    waits = [view.ttft for view in trace.requests.values() if view.request >= APPS and view.ttft is not None]
    return metrics.measure(trace), median(waits)
