"""With K and V in a byte a value, float32 tokens equal those of transformers with K and V rounded in the same way, of
many decoder types, batched, preempted, cancelled, behind shared prefixes; and a pool of the same bytes holds more."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, measure
from engine.config import MODES, PAGED_MODES
from engine.models.loading import load
from engine.trace import FinishReason
from tests.engine.captured_logits import answers
from tests.engine.rounded_reference import greedy, rounded_attention
from tests.engine.tiny_models import random_prompts

ARCHITECTURES = ["llama", "qwen3", "mistral", "gemma2", "gemma3", "phi3", "mixtral", "gpt-oss", "gpt2", "gpt-neox"]
LENGTHS, NEW, CANCELLED = (3, 17, 1, 41, 9), 24, 3
GREEDY = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)


def prompts() -> list[list[int]]:
    found = random_prompts(LENGTHS)
    return [*found, found[1][:16] + found[0]]  # the last begins as another does


def spec_of(folder: Path) -> ModelSpec:
    return ModelSpec(str(folder), dtype="float32", device="cpu")


WAYS = (0, 16, "chunked", 160), (1, 4, "continuous", 80)  # depth, block size, mode and tokens that there is room for


@pytest.mark.parametrize(
    ("name", "kv_dtype", "ways"),
    [
        *((name, "int8", WAYS[place % 2 :][:1]) for place, name in enumerate(ARCHITECTURES)),
        *((name, "fp8", WAYS) for name in ARCHITECTURES[::4]),
    ],
)
def test_tokens_are_those_of_transformers_with_rounded_keys_and_values(
    name: str, kv_dtype: str, ways: tuple[tuple[int, int, str, int], ...], tiny_folder: Callable[[str], Path]
) -> None:
    module = AutoModelForCausalLM.from_pretrained(tiny_folder(name), dtype=torch.float32).eval()
    with rounded_attention(module, kv_dtype):
        expected = [greedy(module, prompt, NEW) for prompt in prompts()]
    model = load(spec_of(tiny_folder(name)))
    for depth, block_size, mode, room in ways:
        config = EngineConfig(
            mode,
            max_running=5,
            token_budget=32,
            block_size=block_size,
            kv_memory=room * model.card_with(kv_dtype).kv_token_bytes,
            prefix_caching=True,
            depth=depth,
            kv_dtype=kv_dtype,
        )
        with Engine(model, threads=1) as engine:
            trace, completions, logits = answers(engine, config, prompts(), GREEDY, CANCELLED)
        assert measure(trace).preemptions > 0 or block_size == 16
        assert completions[CANCELLED].finish_reason is FinishReason.CANCELLED
        for completion, found, (tokens, right) in zip(completions, logits, expected):
            count = len(completion.token_ids)
            assert list(completion.token_ids) == tokens[:count]
            # A value beside a border between two codes falls to either side of it by the last bit of its product.
            off = (found - right[:count]).abs().max() / right.abs().max()
            assert off < 0.03, off


@pytest.mark.parametrize("mode", sorted(set(MODES) - set(PAGED_MODES)))
def test_modes_without_blocks_refuse_them(mode: str) -> None:
    with pytest.raises(
        InvalidInput, match=f"kv_dtype='int8': mode '{mode}' .* continuous, chunked, disaggregated, or auto"
    ):
        EngineConfig(mode, kv_dtype="int8")


def test_what_no_cache_is_made_of_is_refused() -> None:
    with pytest.raises(InvalidInput, match="kv_dtype='int4'"):
        EngineConfig(kv_dtype="int4")


@pytest.mark.parametrize(("dtype", "times"), [("float32", 3.8), ("bfloat16", 1.9)])
def test_the_same_bytes_hold_so_many_times_the_tokens(dtype: str, times: float) -> None:
    """Of the demo model, whose heads are as narrow as any's: its scales take the largest share."""
    model = load(ModelSpec("demo", dtype=dtype, device="cpu"))
    blocks = {}
    for kv_dtype in ("auto", "int8", "fp8"):
        with Engine(model, EngineConfig(kv_memory=8 << 20, kv_dtype=kv_dtype), threads=1) as engine:
            header = engine.trace.header
            assert header.model.kv_dtype == ("" if kv_dtype == "auto" else kv_dtype)
            assert engine.card.kv_token_bytes == model.card.kv_token_bytes
            blocks[kv_dtype] = header.blocks
            caches = [*engine.runner.k_caches, *engine.runner.v_caches]
            held = sum(cache.nbytes for cache in caches)
            assert held == header.blocks * 16 * header.model.kv_token_bytes <= 8 << 20
    assert blocks["int8"] == blocks["fp8"] >= times * blocks["auto"]


def test_blocks_of_codes_swap_like_others() -> None:
    """The demo says the same where its blocks went to host memory and came back."""
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
    model = load(ModelSpec("demo", dtype="float32", device="cpu"))
    room = 14 * 16 * model.card_with("int8").kv_token_bytes
    said = []
    for how in (EngineConfig(kv_dtype="int8"), EngineConfig(kv_dtype="int8", kv_memory=room, preemption="swap")):
        with Engine(model, how, threads=1) as engine:
            streams = [engine.submit(f"Tell me a story about {n} foxes.", params) for n in range(6)]
            said.append([stream.result(timeout=60).token_ids for stream in streams])
            assert (measure(engine.trace).preemptions > 0) == (how.kv_memory is not None)
    assert said[0] == said[1]
