"""Layers that keep a state in the place of keys and values: how many more requests the same memory holds, and what
decode steps and prompts take."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from engine.bench.subject import plain_tokenizer
from engine.bench.techniques.measured import Measured
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.config.submission import Submission
from engine.core.engine import Engine
from engine.models.loading import LoadedModel, wrap
from engine.trace.measures.decode_steps import decode_steps
from engine.trace.records import Kind

LAYERS, HEADS, HIDDEN, VOCABULARY, CONTEXT, MEMORY = 4, 8, 512, 1024, 8192, 1 << 30
ROWS, PROMPT, NEW = 4, 4096, 12
HELD_GOAL, STEPS_GOAL, PROMPTS_GOAL = 3.0, 0.8, 1.0


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    """Of random models with the heads of Qwen3.5-0.8B: three layers in four keep states, or all attend."""
    for dtype in (torch.float32, torch.bfloat16):
        models = [random_model(dtype, states) for states in (False, True)]
        found = [[_played(model, threads) for model in models] for _ in range(rounds)]
        name, shape = models[0].card.dtype, f"3 of {LAYERS} layers keep a state of 1 MiB"
        held = [MEMORY // (CONTEXT * m.card.kv_token_bytes + m.card.state_bytes) for m in models]
        told = f"requests of {CONTEXT:,} tokens"
        yield Measured(
            "states", f"{name}, {shape}, {MEMORY >> 20:,} MiB", told, held[0], held[1], held[1] / held[0], HELD_GOAL
        )
        rows = f"{name}, {shape}, {ROWS} rows of {PROMPT:,}"
        for i, (what, goal) in enumerate((("ms a decode step", STEPS_GOAL), ("ms of their prompts", PROMPTS_GOAL))):
            before, after = (1e3 * median(each[i] for each in of_one) for of_one in zip(*found, strict=True))
            ratio = median(with_it[i] / without[i] for without, with_it in found)
            yield Measured("states", rows, what, before, after, ratio, goal, at_most=True)


def random_model(dtype: torch.dtype, states: bool) -> LoadedModel:
    torch.manual_seed(0)
    attends = ["full_attention"] * LAYERS
    config = Qwen3_5TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=3 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        linear_num_key_heads=2 * HEADS,
        linear_num_value_heads=2 * HEADS,
        max_position_embeddings=CONTEXT,
        layer_types=None if states else attends,
    )
    return wrap(Qwen3_5ForCausalLM(config).to(dtype), plain_tokenizer(VOCABULARY), "random")


def _played(model: LoadedModel, threads: int | None) -> tuple[float, float]:
    """Seconds of the median decode step of ROWS rows, and of all steps with their prompts. An engine by itself: of two
    the later one would have fewer threads."""
    params = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
    prompts = [[3 + (row * PROMPT + i) % (VOCABULARY - 3) for i in range(PROMPT)] for row in range(ROWS)]
    with Engine(model, EngineConfig(max_running=ROWS), threads=threads) as engine:
        for stream in engine.submit_many([Submission(prompt, params) for prompt in prompts]):
            stream.result()
        steps = list(engine.trace.steps)
    reading = sum(step.ended - step.started for step in steps if (step.kind == Kind.PREFILL).any())
    return median(timing.period for timing in decode_steps(steps, ROWS)), reading
