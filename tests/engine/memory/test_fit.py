"""The bill before a load is what the load then takes, for every quantization that can be loaded here."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import resources
from engine import EngineConfig, InvalidInput, ModelSpec
from engine.bench.cpu.rounded_awq import save_rounded_awq
from engine.checkpoints.architectures import PLANNED
from engine.checkpoints.info import ModelInfo, StoredQuantization, inspect_parts
from engine.checkpoints.inspect import inspect_folder, inspect_model
from engine.config import OF_LAYERS, missing
from engine.core import machine
from engine.core.setup.activations import computed_bytes
from engine.core.setup.kv_budget import pool_blocks
from engine.memory.datasheet import find_datasheet
from engine.memory.fit import DeviceMemory, Fit, fits, load_dtype, model_info, simple_kv
from engine.memory.rules import CAPTURE, LEAST_RESERVE, gpu_needs, mixed_sizes, step_bytes
from engine.memory.splitting import rank_counts, why_unstaged, why_whole
from engine.memory.weight_bytes import expert_bytes, held_bytes
from engine.models.loading import load
from engine.parallel.split import INTERLEAVED
from tests.engine.tiny_models import _llama_like, change_config, save_tiny_model

GB = 1 << 30
AMPLE = DeviceMemory("cpu", 64 * GB, 64 * GB)
SHIPPED_AWQ = resources.path("models/stories-5m-awq")
AT_LOAD = [name for name in OF_LAYERS if name != "awq"]
SEVERAL = ["llama wide heads", "gemma2", "phi3", "qwen3 moe", "gpt-oss", "gpt2", "opt"]


def fit(info: ModelInfo, quantization: str = "none", room: DeviceMemory = AMPLE, **options: object) -> Fit:
    (found,) = fits(info, room, quantizations=[quantization], **options)  # type: ignore[arg-type]
    return found


def check_against_a_load(info: ModelInfo, spec: ModelSpec) -> None:
    if missing(spec.quantization):
        pytest.skip(missing(spec.quantization))
    found = fit(info, spec.quantization, dtype=spec.dtype)
    card = load(spec).card
    assert found.dtype == card.dtype
    assert found.kv_token == card.kv_token_bytes
    assert info.parameters == card.parameters
    assert found.weights == pytest.approx(card.weight_bytes, rel=0.001)  # 3 % are allowed


@pytest.mark.parametrize("quantization", AT_LOAD)
def test_the_demo_model_takes_what_its_bill_says(quantization: str) -> None:
    check_against_a_load(inspect_model("demo"), ModelSpec("demo", quantization, device="cpu"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float16"])
def test_other_precisions_take_what_their_bill_says(dtype: str) -> None:
    for quantization in ("none", "nf4"):
        check_against_a_load(inspect_model("demo"), ModelSpec("demo", quantization, dtype, "cpu"))


@pytest.mark.parametrize("quantization", ["none", "int8", "nf4"])
def test_experts_whose_weights_have_other_names_are_billed_too(quantization: str, tmp_path: Path) -> None:
    folder = tmp_path / quantization
    save_tiny_model(_llama_like("GraniteMoe", num_local_experts=4, num_experts_per_tok=2), folder)
    info = inspect_folder(folder, "granite moe")
    assert info.experts == 2 * 4 * 3 * 64 * 128
    check_against_a_load(info, ModelSpec(str(folder), quantization, device="cpu"))


def test_an_awq_mixture_is_billed_and_bounded_by_what_it_holds(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = save_rounded_awq(tiny_folder("mixtral"), tmp_path / "awq", 32)
    weights = load_file(folder / "model.safetensors")
    info = inspect_folder(folder, "awq")
    sheet = find_datasheet("H100")
    for name in ("none", "awq"):
        bill = fit(info, name, room=sheet.room)
        assert not bill.note.endswith("slowly"), "groups of 32 are its kernel's too"
        most = sheet.decode_bound(info, bill, 1, 32)
        assert sheet.bandwidth / bill.weights < most < 4 * sheet.bandwidth / bill.weights
    for name in [name for name in weights if "layers.0" in name and ".experts." in name]:
        tensor = weights.pop(name)
        if name.endswith("qweight"):
            weights[name.replace("qweight", "weight")] = torch.randn(8 * tensor.shape[1], tensor.shape[0])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    check_against_a_load(inspect_folder(folder, "in part"), ModelSpec(str(folder), "awq", device="cpu"))


@pytest.mark.skipif(not SHIPPED_AWQ.is_dir(), reason="the AWQ demo checkpoint is not here")
@pytest.mark.parametrize("dtype", ["auto", "float32", "float16"])
def test_the_demo_models_awq_checkpoint_takes_what_its_bill_says(dtype: str) -> None:
    awq = ModelSpec("demo", "awq", dtype, "cpu")
    check_against_a_load(inspect_model(awq), awq)
    check_against_a_load(inspect_model("demo"), awq)  # the plain one's bill knows of the one beside it
    note = fit(inspect_model(awq), "awq", dtype=dtype).note
    assert ("unpacked once at load" in note) == (dtype == "float16")


@pytest.mark.parametrize("quantization", ["none", "int8-plain", "nf4-double", "torchao-int8"])
@pytest.mark.parametrize("name", SEVERAL)
def test_tiny_models_take_what_their_bill_says(
    name: str, quantization: str, tiny_folder: Callable[[str], Path]
) -> None:
    folder = tiny_folder(name)
    info = inspect_folder(folder, name)
    if quantization == "torchao-int8" and info.conv1d:
        assert "torchao does not convert the layers of gpt2" in fit(info, quantization).available
        return
    check_against_a_load(info, ModelSpec(str(folder), quantization, device="cpu"))


# The rules that a load follows as well.


def test_the_pool_is_the_one_that_the_engine_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(ModelSpec("demo", device="cpu"))
    info = inspect_model("demo")
    for free in (GB // 8, 64 * GB):  # a quarter of what is free; what the running requests could ever fill
        monkeypatch.setattr(machine, "memory", lambda: (64 * GB, free))  # noqa: B023
        config = EngineConfig()
        held = pool_blocks(model, config) * config.block_size
        assert fit(info, room=DeviceMemory("cpu", free + fit(info).weights, 64 * GB)).tokens == held


def test_activations_are_estimated_by_the_rule_of_the_engine() -> None:
    model = load(ModelSpec("demo", device="cpu"))
    assert fit(inspect_model("demo")).activations == computed_bytes(model, 2048, 64)
    assert fit(inspect_model("demo"), max_running=8).activations == computed_bytes(model, 2048, 8)


def test_a_gpus_pool_takes_all_but_a_step_its_graphs_and_a_reserve() -> None:
    info, room = large(), DeviceMemory("cuda", 24 * GB, 24 * GB)
    assert fit(info, room=DeviceMemory("cuda", 24 * GB, 24 * GB, display=True)).pool < fit(info, room=room).pool
    bill = fit(info, room=room)
    left = room.free - bill.weights - bill.activations - bill.pool
    shape = info.hidden, info.head_dim, info.mlp, info.vocabulary, 2
    mixed = mixed_sizes(2048, info.layers, 32 * (2 * 5120 * 4096 + 3 * 14336 * 4096))
    assert 64 < mixed[-1] < 1024, "a large model's longer steps are not captured"
    captured = max(step_bytes(64, 64, *shape), step_bytes(mixed[-1], 64, *shape))
    needed = gpu_needs(64, info.layers, info.vocabulary, captured, 11 + len(mixed))
    assert (11 + len(mixed)) * CAPTURE < needed < GB
    reserve = 0.02 * (room.free - bill.weights)
    assert left == pytest.approx(needed + max(reserve, LEAST_RESERVE), abs=16 * bill.kv_token + 1)
    assert bill.pool > 0.75 * (room.free - bill.weights)


# What fits, and what cannot be chosen.

LARGE = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip


def large(**changes: object) -> ModelInfo:
    """Llama 3 8B, as its config and headers tell it."""
    shapes = {
        "self_attn.q_proj": (4096, 4096), "self_attn.k_proj": (1024, 4096), "self_attn.v_proj": (1024, 4096),
        "self_attn.o_proj": (4096, 4096), "mlp.gate_proj": (14336, 4096), "mlp.up_proj": (14336, 4096),
        "mlp.down_proj": (4096, 14336), "input_layernorm": (4096,), "post_attention_layernorm": (4096,),
    }  # fmt: skip
    headers = {f"model.layers.{i}.{n}.weight": (shape, "BF16") for i in range(32) for n, shape in shapes.items()}
    for name in ("model.embed_tokens", "lm_head"):
        headers[f"{name}.weight"] = ((128256, 4096), "BF16")
    headers["model.norm.weight"] = ((4096,), "BF16")
    return inspect_parts(LARGE | changes, headers, "8B")


def test_a_large_models_bill_on_a_card_of_twelve_gigabytes() -> None:
    info = large()
    assert info.parameters == 8_030_261_248
    assert info.kv_token_bytes("bfloat16") == 131_072
    bills = {bill.quantization: bill for bill in fits(info, DeviceMemory("cuda", 12 * GB, 12 * GB))}
    assert list(bills) == list(OF_LAYERS)
    assert {name: bill.fits for name, bill in bills.items()} == {
        "none": False, "int8": True, "int8-plain": True, "nf4": True, "nf4-double": True, "awq": True,
        "torchao-int8": True,
    }  # fmt: skip
    assert bills["none"].weights == 2 * info.parameters
    assert bills["none"].requests(1024) == 0
    nf4, int8 = bills["nf4"], bills["int8"]
    assert nf4.weights < int8.weights < bills["none"].weights
    assert nf4.requests(1024) > int8.requests(1024) > 0
    assert nf4.tokens * nf4.kv_token == nf4.pool < 0.98 * (12 * GB - nf4.weights) - nf4.activations
    assert bills["awq"].available == "no AWQ checkpoint: make one with batchscope quantize"


def test_the_rule_of_thumb_is_too_much_by_the_heads_that_share() -> None:
    info = large()
    assert simple_kv(info, 2, 1000, 4) == 2 * 2 * 32 * 4096 * 1000 * 4
    assert simple_kv(info, 2, 1, 1) == info.kv_token_bytes("bfloat16") * 32 // 8


def test_a_memory_that_is_full_holds_nothing() -> None:
    bill = fit(inspect_model("demo"), room=DeviceMemory("cpu", 1 << 20, GB))
    assert (bill.fits, bill.tokens, bill.pool, bill.requests(16)) == (False, 0, 0, 0)


def test_auto_is_the_checkpoints_precision_on_a_gpu_and_the_fastest_on_a_cpu() -> None:
    info = large()
    assert load_dtype(info, "none", "cuda") == load_dtype(info, "nf4", "cuda") == "bfloat16"
    assert load_dtype(info, "none", "cpu") == "float32"
    assert load_dtype(info, "nf4", "cpu") == "bfloat16"
    assert load_dtype(info, "none", "cpu", "float16") == "float16"


def awq(group: int = 128) -> ModelInfo:
    return replace(large(), quantized=StoredQuantization("awq", 4, group))


def test_a_checkpoint_that_is_awq_already_is_not_quantized_again() -> None:
    bills = {bill.quantization: bill for bill in fits(awq(), AMPLE)}
    assert bills["none"].available == bills["awq"].available == ""
    assert bills["none"].weights == bills["awq"].weights
    assert bills["none"].dtype == "bfloat16"
    assert "is loaded as such" in bills["none"].note
    for name in ("int8", "int8-plain", "nf4", "nf4-double", "torchao-int8"):
        assert bills[name].available == "this checkpoint is AWQ already: nothing to quantize"
        assert bills[name].note == ""
        assert bills[name].weights == fit(large(), name).weights  # what the original's would be


def test_awq_says_where_it_saves_no_memory() -> None:
    dense = 2 * awq().parameters
    assert fit(awq(), "awq", dtype="float16").weights == dense
    assert "with float16 on a CPU" in fit(awq(), "awq", dtype="float16").note
    assert "with groups of 4 on a CPU" in fit(awq(4), "awq").note
    assert fit(awq(16), "awq").note == ""
    on_gpu = DeviceMemory("cuda", 80 * GB, 80 * GB)
    assert fit(awq(16), "awq", on_gpu).note == ""
    assert fit(awq(8), "awq", on_gpu).weights == 2 * awq().parameters
    assert "with float32 on a GPU" in fit(awq(), "awq", on_gpu, dtype="float32").note


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"bits": 8}, "bits=8"), ({"version": "gemv"}, "version='gemv'"), ({"group_size": 64}, "hold groups of 128"),
        ({"group_size": "128"}, "group_size='128'"),
    ],
)  # fmt: skip
def test_awq_that_a_load_would_refuse_is_told_beforehand(stored: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = tmp_path / "awq"
    shutil.copytree(resources.path("models/stories-5m-awq"), folder)
    settings = json.loads((folder / "config.json").read_text())["quantization_config"]
    change_config(folder, quantization_config={**settings, **stored})
    info = inspect_model(str(folder))
    assert words in fit(info).available
    with pytest.raises(InvalidInput) as refusal:
        load(ModelSpec(str(folder)))
    assert words in str(refusal.value)


def test_a_dense_checkpoint_that_says_awq_is_told_beforehand(demo_copy: Path) -> None:
    change_config(demo_copy, quantization_config={"quant_method": "awq"})
    assert "not packed" in fit(inspect_model(str(demo_copy))).available


def test_other_quantized_checkpoints_are_refused_by_name() -> None:
    info = replace(large(), quantized=StoredQuantization("gptq", 4, 128))
    assert {bill.available for bill in fits(info, AMPLE)} == {
        "this checkpoint is quantized with gptq, which is not read here: choose the original"
    }


def test_experts_that_stay_as_they_are_are_told(tiny_folder: Callable[[str], Path]) -> None:
    info = inspect_folder(tiny_folder("mixtral"), "mixtral")
    assert fit(info).note == fit(info, "nf4").note == ""
    assert 0.5 * info.experts < expert_bytes(info, "nf4", "bfloat16") < 0.6 * info.experts
    assert "none of a mixture" in fit(info, "awq").available
    other = replace(info, expert_matrices=())  # of a layout that is not known
    assert fit(other).note == ""
    assert "of the weights, stay in bfloat16" in fit(other, "nf4").note
    assert held_bytes(other, "nf4", "bfloat16", "cpu") > expert_bytes(other, "nf4", "bfloat16") == 2 * other.experts


# Where a model lies.


def test_a_models_facts_are_found_in_a_folder(tiny_folder: Callable[[str], Path]) -> None:
    assert model_info(ModelSpec(str(tiny_folder("llama")))).layers == 2
    assert model_info(ModelSpec("demo")).name == "demo stories 5M"
    with pytest.raises(InvalidInput, match="no model 'nonsense'"):
        model_info(ModelSpec("nonsense"))


def test_a_model_that_does_not_fit_on_one_device_may_fit_on_several() -> None:
    info, small = large(), DeviceMemory("cuda", 12 * GB, 12 * GB)
    (whole,) = fits(info, small, quantizations=["none"])
    assert not whole.fits
    assert whole.devices == 2
    less = DeviceMemory("cuda", 5 * GB, 5 * GB)
    (nf4,) = fits(info, less, quantizations=["nf4"])
    (half,) = fits(info, less, quantizations=["nf4"], ranks=2)
    assert (nf4.fits, nf4.devices, half.fits) == (False, 2, True)
    eighth = DeviceMemory("cuda", 4 * GB, 4 * GB)
    (split,) = fits(info, eighth, quantizations=["none"])
    assert split.devices == 8
    (odd,) = fits(replace(info, heads=36, kv_heads=12), eighth, quantizations=["none"])
    assert odd.devices == 0, "2 and 4 divide its heads and columns, and do not hold it"
    (part,) = fits(info, small, quantizations=["none"], ranks=2)
    embedding = 2 * 128_256 * 4096
    assert part.fits
    assert part.weights == embedding + (whole.weights - embedding) // 2
    assert part.kv_token == whole.kv_token // 2
    room = DeviceMemory("cuda", 24 * GB, 24 * GB)
    assert fits(info, room, quantizations=["none"])[0].devices == 0
    tiny = DeviceMemory("cuda", GB // 2, GB)
    assert fits(info, tiny, quantizations=["none"])[0].devices == 0, "the embedding stays whole"
    shared = DeviceMemory("cpu", 12 * GB, 12 * GB)
    assert fits(info, shared, quantizations=["none"])[0].devices == 0, "ranks on a CPU have one memory"
    with pytest.raises(InvalidInput, match="8 key and value heads do not divide by it; use 2 or 4 or 8, or 1"):
        fits(info, small, ranks=16)


def test_what_cannot_be_split_is_told_before_a_load(tiny_folder: Callable[[str], Path]) -> None:
    for name, why in [
        ("llama", ""),
        ("gpt-oss", ""),
        ("gpt2", "transformers cannot split model type 'gpt2'"),
        ("olmo2", "this model norms all its heads together"),
        ("llama wide heads", "no number of ranks divides its 4 heads and 1 of keys and values"),
    ]:
        assert why_whole(inspect_folder(tiny_folder(name), name)) == why
    llama = inspect_folder(tiny_folder("llama"), "llama")
    assert rank_counts(llama) == [1, 2]
    assert why_unstaged(llama) == ""
    assert set(PLANNED) == set(INTERLEAVED)


def test_groups_of_columns_that_share_a_scale_are_whole_on_every_rank() -> None:
    """As gpt-oss-120b has them: 90 groups of 32 columns an expert, which two ranks divide, and 128 experts."""
    matrices = ((2880, 5760, 36 * 128), (2880, 2880, 36 * 128))
    config = {"heads": 64, "kv_heads": 8, "head_dim": 64, "hidden": 2880, "layer_experts": 128, "mlp": 4 * 2880}
    stored = StoredQuantization("mxfp4", 4, 32)
    info = replace(large(), **config, model_type="gpt_oss", experts=1, expert_matrices=matrices, quantized=stored)
    assert rank_counts(info) == [1, 2]
    assert rank_counts(info, whole_experts=True) == [1, 2, 4, 8]
    assert why_whole(info) == ""
    plain = replace(info, quantized=None)
    assert rank_counts(plain) == [1, 2, 4, 8], "where nothing shares a scale a load looks at the columns"
    assert rank_counts(plain, "nf4") == [1], "45 groups of 64"
