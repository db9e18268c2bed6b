"""Speculative decoding: a draft model on stories, n-grams on stories told again, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from engine.bench.techniques.measured import Measured
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.config.submission import Prompt
from engine.core.engine import Engine
from engine.trace.measures.metrics import Metrics
from engine.trace.measures.metrics import measure as measured_run
from engine.workloads import load_workload

NOUNS = (("fox", "table"), ("queen", "boat"), ("robot", "lamp"), ("cat", "piano"), ("dragon", "kite"), ("owl", "drum"))
COPIED = 6
GREEDY = SamplingParams(max_tokens=150, temperature=0)


def stories() -> list[Prompt]:
    return [[{"role": "user", "content": f"Tell me a story about a {a} and a {b}."}] for a, b in NOUNS]


def played(engine: Engine, config: EngineConfig, prompts: Sequence[Prompt]) -> Metrics:
    """One prompt after the other."""
    trace = engine.begin(config)
    for prompt in prompts:
        engine.submit(prompt, GREEDY).result(timeout=120)
    return measured_run(trace)


def rate(found: Metrics) -> float:
    """Output tokens a second between a request's first and last."""
    return 1 / found.tpot.mean if found.tpot.mean else 0.0


def beside(
    engine: Engine, how: EngineConfig, prompts: Sequence[Prompt], rounds: int
) -> tuple[list[Metrics], list[Metrics]]:
    """With and without, in turns."""
    without, with_it = list[Metrics](), list[Metrics]()
    for _ in range(rounds):
        without.append(played(engine, replace(how, speculation=None, draft=None), prompts))
        with_it.append(played(engine, how, prompts))
    return without, with_it


def by_draft(rounds: int, threads: int | None, dtype: str) -> Measured:
    how = EngineConfig(max_running=4, speculation="draft")
    with Engine(ModelSpec("demo", dtype=dtype), how, threads=threads) as engine:
        without, with_it = beside(engine, how, stories(), rounds)
    last = with_it[-1]
    said = f"{last.acceptance_rate or 0:.0%} kept, {last.accepted_length or 0:.1f} tokens a row"
    return Measured(
        f"speculation, draft model, {dtype}",
        f"{len(NOUNS)} stories, one at a time, greedy",
        "output tok/s",
        median(map(rate, without)),
        median(map(rate, with_it)),
        median(rate(b) / rate(a) for a, b in zip(without, with_it)),
        goal=1.3,
        note=said,
    )


def by_ngram(rounds: int, threads: int | None) -> Measured:
    how = EngineConfig(max_running=4, speculation="ngram")
    prompts = [arrival.prompt for arrival in load_workload("copying", count=COPIED).arrivals]
    with Engine(ModelSpec("demo"), how, threads=threads) as engine:
        without, with_it = beside(engine, how, prompts, rounds)
    last = with_it[-1]
    return Measured(
        "speculation, n-grams",
        f"{COPIED} stories told again, one at a time, greedy",
        "output tok/s",
        median(map(rate, without)),
        median(map(rate, with_it)),
        median(rate(b) / rate(a) for a, b in zip(without, with_it)),
        goal=1.8,
        note=f"{last.acceptance_rate or 0:.0%} kept, {last.accepted_length or 0:.1f} tokens a row",
    )


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    for dtype in ("float32", "bfloat16"):
        yield by_draft(rounds, threads, dtype)
    yield by_ngram(rounds, threads)
