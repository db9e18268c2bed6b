"""Layers that read the keys and values of others keep none: as Gemma 3n's last ones."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3nTextConfig

from engine import Engine, EngineConfig, ModelSpec, SamplingParams, measure
from engine.checkpoints import inspect_model
from engine.models.loading import LoadedModel, load
from engine.trace.work import count_work
from tests.engine.captured_logits import answers
from tests.engine.rounded_reference import greedy, rounded_attention
from tests.engine.tiny_models import VOCABULARY, TinyModel, random_prompts, save_tiny_model

LAYERS, SHARED, NEW = 6, 2, 16


def config() -> Gemma3nTextConfig:
    return Gemma3nTextConfig(
        vocab_size=VOCABULARY,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size=64,
        hidden_size_per_layer_input=8,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_kv_shared_layers=SHARED,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"] * (LAYERS // 2),
        activation_sparsity_pattern=[0.0] * LAYERS,
        laurel_rank=8,
        altup_num_inputs=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gemma3n")
    save_tiny_model(TinyModel(config, std=0.15), path)
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load(ModelSpec(str(folder), dtype="float32", device="cpu"))


def prompts() -> list[list[int]]:
    return random_prompts((3, 17, 1, 31, 9))


def test_card_and_fit_count_one_copy(model: LoadedModel, folder: Path) -> None:
    card, info = model.card, inspect_model(ModelSpec(str(folder)))
    assert (card.layers, card.kv_layers) == (info.layers, info.kv_layers) == (LAYERS, LAYERS - SHARED)
    assert card.kv_token_bytes == 2 * (LAYERS - SHARED) * 2 * 16 * 4 == info.kv_token_bytes("float32")
    assert model.card_with("int8").kv_token_bytes == 2 * (LAYERS - SHARED) * 2 * 17
    assert info.kv_token_bytes("float32", "int8") == model.card_with("int8").kv_token_bytes


@pytest.mark.parametrize("mode", ["continuous", "chunked", "continuous-padded", "static"])
def test_tokens_are_those_of_transformers(mode: str, folder: Path, model: LoadedModel) -> None:
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    expected = [greedy(module, prompt, NEW) for prompt in prompts()]
    how = EngineConfig(mode, max_running=4, token_budget=32, block_size=4, kv_memory=80 * model.card.kv_token_bytes)
    if mode in ("continuous-padded", "static"):
        how = EngineConfig(mode, max_running=4, token_budget=32, kv_memory=400 * model.card.kv_token_bytes)
    check(model, how, expected, 1e-3)


def test_tokens_over_codes_are_those_of_transformers_with_rounded_keys_and_values(
    folder: Path, model: LoadedModel
) -> None:
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with rounded_attention(module, "int8"):
        expected = [greedy(module, prompt, NEW // 2) for prompt in prompts()]
    check(model, EngineConfig(max_running=4, kv_dtype="int8"), expected, 0.03)


def check(model: LoadedModel, how: EngineConfig, expected: list[tuple[list[int], torch.Tensor]], most: float) -> None:
    with Engine(model, threads=1) as engine:
        params = SamplingParams(max_tokens=len(expected[0][0]), temperature=0, ignore_eos=True)
        trace, completions, logits = answers(engine, how, prompts(), params)
        if how.paged:
            caches = [*engine.runner.k_caches, *engine.runner.v_caches]
            header = trace.header
            assert len(caches) == 2 * (LAYERS - SHARED)
            assert sum(cache.nbytes for cache in caches) == header.blocks * how.block_size * header.kv_token_bytes
            assert measure(trace).preemptions > 0 or how.kv_memory is None
        told = count_work(trace.header, trace.steps[:1])
    assert told.bytes[0] > 0
    for completion, found, (tokens, right) in zip(completions, logits, expected):
        assert list(completion.token_ids) == tokens
        if how.paged:
            assert (found - right).abs().max() < most * right.abs().max()
    assert len({token for tokens, _ in expected for token in tokens}) > 10
