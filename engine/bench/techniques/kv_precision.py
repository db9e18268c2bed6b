"""K and V in a byte a value: how many more requests the same memory holds, and what a decode step takes."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import torch

from engine.bench.subject import Shape, plain_tokenizer, random_llama
from engine.bench.techniques.measured import Measured
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.config.submission import Submission
from engine.core.engine import Engine
from engine.memory.rules import kv_capacity
from engine.models.loading import LoadedModel, wrap
from engine.trace.measures.decode_steps import decode_steps

SHAPE, MEMORY = Shape(layers=4), 256 << 20
ROWS, PROMPT, NEW, STEPS_GOAL = 16, 256, 12, 1.1
KINDS = ("int8", "fp8")


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    """Of a Llama of 21 M parameters in float32 and bfloat16."""
    for dtype in (torch.float32, torch.bfloat16):
        model = wrap(random_llama(SHAPE).to(dtype), plain_tokenizer(SHAPE.vocabulary), "random")
        with Engine(model, threads=threads) as engine:
            seconds = [{kind: _step(engine, kind) for kind in ("auto", *KINDS)} for _ in range(rounds)]
        yield from _found(model, seconds)


def _step(engine: Engine, kind: str) -> float:
    """The median decode step of ROWS rows."""
    engine.begin(EngineConfig(max_running=ROWS, token_budget=ROWS * PROMPT, kv_dtype=kind))
    params = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
    prompts = [[3 + (row * PROMPT + i) % (SHAPE.vocabulary - 3) for i in range(PROMPT)] for row in range(ROWS)]
    for stream in engine.submit_many([Submission(prompt, params) for prompt in prompts]):
        stream.result()
    return median(timing.period for timing in decode_steps(engine.trace.steps, ROWS))


def _found(model: LoadedModel, seconds: list[dict[str, float]]) -> Iterator[Measured]:
    size, dtype = EngineConfig().block_size, model.card.dtype
    held = {
        kind: kv_capacity(MEMORY // (size * model.card_with(kind).kv_token_bytes), size, SHAPE.context)
        for kind in ("auto", *KINDS)
    }
    for kind in KINDS:
        yield Measured(
            f"KV {kind}",
            f"{dtype}, {MEMORY >> 20} MiB of KV",
            f"requests of {SHAPE.context:,} tokens",
            held["auto"],
            held[kind],
            held[kind] / held["auto"],
            1.9,
        )
        yield Measured(
            f"KV {kind}",
            f"{dtype}, {ROWS} rows of {PROMPT} tokens",
            "ms a decode step",
            1e3 * median(each["auto"] for each in seconds),
            1e3 * median(each[kind] for each in seconds),
            median(each[kind] / each["auto"] for each in seconds),
            STEPS_GOAL,
            at_most=True,
        )
