"""Beam search: what four beams hold beside one greedy answer, over long prompts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from statistics import median

from engine.bench.techniques.measured import Measured
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.config.submission import Submission
from engine.core.engine import Engine
from engine.workloads.texts import text_of
from engine.workloads.tokens import counter_for

REQUESTS, PROMPT, ANSWER, WIDTH = 16, 600, 64, 4
GREEDY = SamplingParams(max_tokens=ANSWER, temperature=0, ignore_eos=True)


def peak_and_rate(engine: Engine, config: EngineConfig, prompts: list[str], width: int) -> tuple[float, float]:
    """The most bytes of the pool that had an owner, in MB, and results a second."""
    trace, params = engine.begin(config), replace(GREEDY, beam_width=width)
    streams = engine.submit_many([Submission(prompt, params) for prompt in prompts])
    for stream in streams:
        stream.results(timeout=300)
    held = max(trace.header.blocks - step.free_blocks - step.cached_blocks for step in trace.steps)
    first = min(view.submitted for view in trace.requests.values())
    return held * config.block_size * engine.card.kv_token_bytes / 1e6, len(prompts) / (trace.end - first)


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    config = EngineConfig(max_running=REQUESTS * WIDTH)
    with Engine(ModelSpec("demo"), config, threads=threads) as engine:
        counter = counter_for()
        prompts = [text_of(PROMPT, counter, Random(seed)) for seed in range(REQUESTS)]
        without, with_it = [], []
        for _ in range(rounds):
            without.append(peak_and_rate(engine, config, prompts, 1))
            with_it.append(peak_and_rate(engine, config, prompts, WIDTH))
    slower = median(b[1] / a[1] for a, b in zip(without, with_it))
    yield Measured(
        f"beam search, {WIDTH} beams",
        f"{REQUESTS} prompts of {PROMPT} tokens, {ANSWER} more each",
        "KV held at most, MB",
        median(held for held, _ in without),
        median(held for held, _ in with_it),
        median(b[0] / a[0] for a, b in zip(without, with_it)),
        goal=1.6,
        at_most=True,
        note=f"requests a second × {slower:.2f}",
    )
