"""Prompt compression: what half of a story saves before its first token, and how far the answer moves."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from statistics import mean, median

from engine.bench.techniques.measured import Measured
from engine.compression import Effect, compare_compressed, compress
from engine.config.specs import EngineConfig, ModelSpec
from engine.core.engine import Engine
from engine.workloads.texts import text_of
from engine.workloads.tokens import counter_for

PROMPTS, TOKENS, RATIO, ANSWER = 12, 600, 0.5, 32
GOAL = 0.8  # of the time to the first token: half of the tokens, and what a step costs whatever it computes
QUESTION = "\n\nTell me a story about a fox and a kite."


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    with Engine(ModelSpec("demo"), EngineConfig(max_running=4), threads=threads) as engine:
        counter = counter_for()
        effects = [_effect(engine, text_of(TOKENS, counter, Random(seed)), rounds) for seed in range(PROMPTS)]
    without, with_it = ([median(side.ttft) for side in sides] for sides in zip(*((e.before, e.after) for e in effects)))
    kept = mean(e.after.tokens / e.before.tokens for e in effects)
    moved = f"{100 * mean(e.agreement for e in effects):.0f} % of the answers' tokens equal"
    yield Measured(
        f"prompt compression to {RATIO:g}, by information",
        f"{PROMPTS} prompts of {TOKENS} tokens",
        "ms to the first token",
        1e3 * median(without),
        1e3 * median(with_it),
        median(1 / e.speed_up for e in effects),
        GOAL,
        at_most=True,
        note=f"{kept:.2f} of the tokens left, {moved}, KL ≥ {mean(e.kl for e in effects):.2g} nats a token",
    )


def _effect(engine: Engine, text: str, rounds: int) -> Effect:
    prompt = [{"role": "user", "content": text + QUESTION}]
    short = compress(engine, prompt, ratio=RATIO).prompt
    return compare_compressed(engine, prompt, short, answer=ANSWER, rounds=rounds)
