"""Latents in the place of all heads' keys and values: how many more requests the same memory holds, and what a decode
step takes."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

from engine.bench.subject import plain_tokenizer
from engine.bench.techniques.measured import Measured
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.config.submission import Submission
from engine.core.engine import Engine
from engine.memory.rules import kv_capacity
from engine.models.loading import LoadedModel, wrap
from engine.trace.measures.decode_steps import decode_steps

LAYERS, HEADS, HIDDEN, VOCABULARY, CONTEXT, MEMORY = 2, 16, 512, 1024, 2048, 256 << 20
ROWS, PROMPT, NEW = 8, 768, 12
HELD_GOAL, STEPS_GOAL = 10.0, 0.8


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    """Of a random model with the attention of DeepSeek-V2-Lite, 16 heads around a latent of 512 + 64 numbers, without
    experts."""
    what = f"{HEADS} heads, a latent of 576"
    for dtype in (torch.float32, torch.bfloat16):
        models = [random_model(dtype, latents) for latents in (False, True)]
        found = [[_step(model, threads) for model in models] for _ in range(rounds)]
        size, name = EngineConfig().block_size, models[0].card.dtype
        held = [kv_capacity(MEMORY // (size * m.card.kv_token_bytes), size, CONTEXT) for m in models]
        told = f"requests of {CONTEXT:,} tokens"
        yield Measured(
            "latents", f"{name}, {what}, {MEMORY >> 20} MiB", told, held[0], held[1], held[1] / held[0], HELD_GOAL
        )
        before, after = (1e3 * median(each) for each in zip(*found, strict=True))
        ratio = median(b / a for a, b in found)
        rows = f"{name}, {what}, {ROWS} rows of {PROMPT:,}"
        yield Measured("latents", rows, "ms a decode step", before, after, ratio, STEPS_GOAL, at_most=True)


def random_model(dtype: torch.dtype, latents: bool) -> LoadedModel:
    """Its weights are the same whatever it keeps."""
    torch.manual_seed(0)
    config = DeepseekV3Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=3 * HIDDEN,
        num_hidden_layers=LAYERS,
        first_k_dense_replace=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=None,
        max_position_embeddings=CONTEXT,
    )
    module = DeepseekV3ForCausalLM(config).to(dtype)
    return wrap(module, plain_tokenizer(VOCABULARY), "random", latents=latents)


def _step(model: LoadedModel, threads: int | None) -> float:
    """The median decode step of ROWS rows. An engine by itself: of two the later one would have fewer threads."""
    params = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
    prompts = [[3 + (row * PROMPT + i) % (VOCABULARY - 3) for i in range(PROMPT)] for row in range(ROWS)]
    with Engine(model, EngineConfig(max_running=ROWS, prefix_caching=False), threads=threads) as engine:
        for stream in engine.submit_many([Submission(prompt, params) for prompt in prompts]):
            stream.result()
        return median(timing.period for timing in decode_steps(engine.trace.steps, ROWS))
