"""A model whose key and value heads are each held several times says what it says without, and takes what is billed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams
from engine.checkpoints import inspect_model
from engine.export.source import lane_of
from engine.memory import fits
from engine.memory.fit import DeviceMemory
from engine.trace import Header
from tests.engine.tiny_models import TINY_MODELS, random_prompts

GREEDY = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
PLAIN = EngineConfig(max_running=4, token_budget=32, block_size=8, kv_memory=1 << 20)
ALONE = "gpt2", "gpt-neox", "opt"  # whose heads share nothing
LATENTS = ("deepseek-v3",)  # `tests/engine/core/test_latent.py` has them


def said(spec: ModelSpec) -> tuple[list[list[int]], Header]:
    with Engine(spec, PLAIN, threads=1) as engine:
        streams = [engine.submit(prompt, GREEDY) for prompt in random_prompts((3, 19, 41))]
        return [list(stream.result().token_ids) for stream in streams], engine.trace.header


def billed(spec: ModelSpec) -> tuple[int, int]:
    """Bytes of the weights, and of a token's K and V."""
    room = DeviceMemory("cpu", 1 << 34, 1 << 34)
    bill = fits(inspect_model(spec), room, dtype="float32", quantizations=[spec.quantization])[0]
    return bill.weights, bill.kv_token


@pytest.mark.parametrize("name", [name for name in TINY_MODELS if name not in (*ALONE, *LATENTS)])
def test_the_same_tokens_over_more_heads(name: str, tiny_folder: Callable[[str], Path]) -> None:
    spec = ModelSpec(str(tiny_folder(name)), dtype="float32", device="cpu")
    tokens, header = said(spec)
    more = replace(spec, kv_heads="all")
    repeated, held = said(more)
    assert repeated == tokens
    times = header.model.heads // header.model.kv_heads
    assert times > 1
    assert (held.model.kv_heads, held.model.kv_heads_stored) == (header.model.heads, header.model.kv_heads)
    assert held.model.kv_token_bytes == times * header.model.kv_token_bytes
    assert held.blocks == pytest.approx(header.blocks / times, abs=2), "the pool's bytes are the same"
    assert billed(more) == (pytest.approx(held.model.weight_bytes, rel=1e-3), held.model.kv_token_bytes)
    assert lane_of(held).spec.kv_heads == "all"
    assert lane_of(header).spec.kv_heads == "auto"


@pytest.mark.parametrize("name", ALONE)
def test_heads_that_share_nothing_stay_as_they_are(name: str, tiny_folder: Callable[[str], Path]) -> None:
    spec = ModelSpec(str(tiny_folder(name)), dtype="float32", device="cpu", kv_heads="all")
    _, header = said(spec)
    assert header.model.kv_heads_stored == 0


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_what_is_quantized_at_load_can_be_repeated(quantization: str) -> None:
    spec = ModelSpec("demo", quantization, "float32", "cpu")
    found = [said(replace(spec, kv_heads=kv_heads)) for kv_heads in ("auto", "all")]
    assert found[0][0] == found[1][0]
    assert found[1][1].model.weight_bytes > found[0][1].model.weight_bytes


def test_packed_weights_are_refused_by_the_load_and_by_the_bill() -> None:
    with pytest.raises(InvalidInput, match="checkpoint is quantized"):
        Engine(ModelSpec("demo", "awq", kv_heads="all"))
    room = DeviceMemory("cpu", 1 << 34, 1 << 34)
    bills = fits(inspect_model(ModelSpec("demo", kv_heads="all")), room)
    assert "cannot be repeated" in next(bill.available for bill in bills if bill.quantization == "awq")
