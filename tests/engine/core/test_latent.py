"""Models of multi-head latent attention keep a latent a token, or, asked to, every head's keys and values: the answers
are transformers'."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, Submission, measure
from engine.checkpoints import inspect_model
from engine.config.parallel import Parallel
from engine.kernels.cpu.library import native
from engine.kernels.quantized_kv import CODES, rounded
from engine.memory import why_whole
from engine.models.loading import LoadedModel, load
from engine.trace.work import count_work
from tests.engine.captured_logits import answers
from tests.engine.rounded_reference import greedy
from tests.engine.tiny_models import LATENT, ROUTED, VOCABULARY, TinyModel, random_prompts, save_tiny_model

LAYERS, HEADS, RANK, ROTATED, PLAIN, VALUE, NEW = 2, 4, 32, 16, 16, 16, 12
SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "max_position_embeddings": 512,
    "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **LATENT,
}  # fmt: skip
# Of values narrower than keys; of a rotation of complex numbers; of two attentions a layer; of no latent.
KINDS: dict[str, dict[str, Any]] = {
    "Youtu": {"v_head_dim": 8},
    "DeepseekV2": ROUTED | {"q_lora_rank": None},
    "LongcatFlash": {
        "num_layers": 1, "ffn_hidden_size": 128, "expert_ffn_hidden_size": 64, "moe_topk": 2, "n_routed_experts": 4,
        "zero_expert_num": 1, "head_dim": ROTATED,
    },
    "MiMoV2Flash": ROUTED | {
        "num_key_value_heads": 2, "head_dim": 32, "sliding_window": 8, "kv_lora_rank": None,
        "layer_types": ["full_attention", "sliding_attention"],
    },
}  # fmt: skip


def tiny(kind: str) -> TinyModel:
    return TinyModel(lambda: getattr(transformers, f"{kind}Config")(**SHARED | KINDS[kind]), std=0.15)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("youtu")
    save_tiny_model(tiny("Youtu"), path)
    return path


@pytest.fixture(scope="module", params=["auto", "all"])
def model(request: pytest.FixtureRequest, folder: Path) -> LoadedModel:
    return load(ModelSpec(str(folder), dtype="float32", device="cpu", kv_heads=request.param))


def prompts() -> list[list[int]]:
    return random_prompts((3, 17, 1, 31, 9))


def reference(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def test_a_token_takes_a_latent_or_keys_and_values_of_every_head(model: LoadedModel, folder: Path) -> None:
    card = model.card
    info = inspect_model(ModelSpec(str(folder), kv_heads="auto" if card.latent else "all"))
    numbers, vectors = (RANK + ROTATED, 1) if card.latent else (2 * HEADS * (PLAIN + ROTATED), 2 * HEADS)
    assert card.kv_token_bytes == LAYERS * numbers * 4 == info.kv_token_bytes("float32")
    coded = model.card_with("int8").kv_token_bytes
    assert coded == LAYERS * (numbers + vectors) == info.kv_token_bytes("float32", "int8")
    assert (card.kv_heads, card.head_dim, card.latent) == (info.kv_heads, info.head_dim, info.latent)
    assert card.parameters == info.parameters == reference(folder).num_parameters()


def test_a_number_of_heads_is_refused_and_says_what_there_is(folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"kv_heads.*8.*latent.*all.*auto"):
        load(ModelSpec(str(folder), device="cpu", kv_heads=8))


def test_heads_that_read_one_latent_are_not_split(folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"tensor_parallel=2: all heads.*youtu.*one latent.*pipeline_parallel"):
        load(ModelSpec(str(folder), device="cpu", parallel=Parallel(2)))
    assert why_whole(inspect_model(ModelSpec(str(folder)))) == "all heads of this model read one latent"


def test_a_pipeline_and_a_prefill_worker_answer_alike(folder: Path) -> None:
    said = []
    for stages, mode in ((1, "continuous"), (2, "continuous"), (1, "disaggregated")):
        spec = ModelSpec(str(folder), dtype="float32", device="cpu", parallel=Parallel(pipeline=stages))
        with Engine(spec, EngineConfig(mode, max_running=4), threads=1) as engine:
            params = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
            streams = engine.submit_many([Submission(prompt, params) for prompt in prompts()])
            said.append([stream.result().token_ids for stream in streams])
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize("mode", ["chunked", "continuous-padded", "static", "recompute"])
def test_tokens_are_those_of_transformers(mode: str, folder: Path, model: LoadedModel) -> None:
    expected = [greedy(reference(folder), prompt, NEW) for prompt in prompts()]
    token = model.card.kv_token_bytes
    how = EngineConfig(mode, max_running=4, token_budget=32, kv_memory=None if mode == "recompute" else 400 * token)
    if mode == "chunked":  # so few blocks that requests wait for each other, and are swapped
        how = replace(how, block_size=4, kv_memory=60 * token, preemption="swap", swap_memory=512 * token)
    check(model, how, expected, 1e-3)


@pytest.mark.parametrize("kv_dtype", ["int8", "fp8"])
def test_tokens_over_codes_are_those_of_transformers_with_rounded_latents(kv_dtype: str, folder: Path) -> None:
    module = reference(folder)
    for layer in module.model.layers:
        make = layer.self_attn.expand_kv

        def expand(latent: Tensor, turned: Tensor, make: Any = make) -> Any:
            kept = rounded(torch.cat([latent, turned], dim=-1), CODES[kv_dtype])
            return make(*kept.split([RANK, ROTATED], dim=-1))

        layer.self_attn.expand_kv = expand
    expected = [greedy(module, prompt, NEW // 2) for prompt in prompts()]
    latents = load(ModelSpec(str(folder), dtype="float32", device="cpu"))
    check(latents, EngineConfig(max_running=4, kv_dtype=kv_dtype), expected, 0.03)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "Youtu"])
def test_other_architectures_answer_as_transformers(kind: str, tmp_path: Path) -> None:
    save_tiny_model(tiny(kind), tmp_path)
    loaded = load(ModelSpec(str(tmp_path), dtype="float32", device="cpu"))
    assert loaded.card.latent == (kind != "MiMoV2Flash")
    assert inspect_model(ModelSpec(str(tmp_path))).kv_token_bytes("float32") == loaded.card.kv_token_bytes
    expected = [greedy(reference(tmp_path), prompt, NEW) for prompt in prompts()]
    check(loaded, EngineConfig("chunked", max_running=4, token_budget=32), expected, 1e-3)


def test_what_makes_keys_and_values_is_not_quantized_and_quantized_layers_answer_alike(folder: Path) -> None:
    said = []
    for kv_heads in ("auto", "all"):
        spec = ModelSpec(str(folder), quantization="nf4", dtype="float32", device="cpu", kv_heads=kv_heads)
        with Engine(spec, EngineConfig(max_running=4), threads=1) as engine:
            streams = [engine.submit(prompt, SamplingParams(max_tokens=NEW, temperature=0)) for prompt in prompts()]
            said.append([stream.result().token_ids for stream in streams])
            card = engine.trace.header.model
            assert (card.quantization, card.latent) == ("nf4", kv_heads == "auto")
    assert said[0] == said[1]
    plain = inspect_model(ModelSpec(str(folder)))
    assert plain.others >= LAYERS * HEADS * (PLAIN + KINDS["Youtu"]["v_head_dim"]) * RANK + 2 * VOCABULARY * 64


@pytest.mark.skipif(native().library is None, reason=native().why)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kv_heads", ["auto", "all"])
def test_steps_are_recorded(dtype: str, kv_heads: str, folder: Path) -> None:
    spec = ModelSpec(str(folder), dtype=dtype, device="cpu", kv_heads=kv_heads)
    with Engine(spec, EngineConfig("chunked", max_running=4, token_budget=32), threads=1) as engine:
        params = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
        replayed = [engine.submit(prompt, params).result().token_ids for prompt in prompts()]
        header = engine.trace.header
        engine.begin(EngineConfig("chunked", max_running=4, token_budget=32, cuda_graphs=False))
        assert [engine.submit(prompt, params).result().token_ids for prompt in prompts()] == replayed
    assert header.graphs_off == header.mixed_off == ""
    assert ("by_heads" in header.kernels.names) == (kv_heads == "auto") or "kv_b_proj" in header.kernels.names


def check(model: LoadedModel, how: EngineConfig, expected: list[tuple[list[int], Tensor]], most: float) -> None:
    with Engine(model, threads=1) as engine:
        params = SamplingParams(max_tokens=len(expected[0][0]), temperature=0, ignore_eos=True)
        trace, completions, logits = answers(engine, how, prompts(), params)
        header = trace.header
        if how.paged:
            held = sum(cache.nbytes for cache in engine.runner.block_caches)
            assert held == header.blocks * how.block_size * header.kv_token_bytes
        assert (measure(trace).preemptions > 0) == (how.preemption == "swap")
        assert count_work(header, trace.steps[:1]).bytes[0] > 0
    for completion, found, (tokens, right) in zip(completions, logits, expected):
        assert list(completion.token_ids) == tokens
        if how.paged:
            assert (found - right).abs().max() < most * right.abs().max()
    assert len({token for tokens, _ in expected for token in tokens}) > 10
