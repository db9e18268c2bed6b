"""A mixture's experts are held in fewer bits, as the library that quantizes would hold a layer of theirs, and are
multiplied as they are held."""

import shutil
import threading
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from engine import InvalidInput, ModelSpec
from engine.bench.cpu.rounded_awq import save_rounded_awq
from engine.bench.rounding import round_to_nearest
from engine.checkpoints.inspect import inspect_folder
from engine.config import QUANTIZATIONS
from engine.jobs import LoadCancelled, LoadProgress
from engine.kernels.cpu.experts import ExpertWeights
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.cpu.library import native
from engine.kernels.silu_mul import Activation
from engine.memory.weight_bytes import held_bytes
from engine.models.loading import load
from engine.models.packed_experts import PackedExperts
from engine.models.quantization.awq_experts import AwqExperts
from engine.models.quantization.awq_layout import dequantize
from engine.models.quantization.bitsandbytes import eight_bit_codes
from engine.models.quantization.coded_experts import CodedExperts
from engine.models.quantization.mxfp4 import mxfp4_codes
from tests.engine.tiny_models import TINY_MODELS, _llama_like, change_config, make_tiny_model, save_tiny_model

AT_LOAD = [name for name in QUANTIZATIONS if name not in ("awq", "none")]
SILU = Activation.SILU
NEAR = {"float32": 1e-5, "bfloat16": 2e-2}
compiled = pytest.mark.skipif(native().library is None, reason=native().why)


def rounded(weight: Tensor, quantization: str) -> Tensor:
    """What a library makes of one expert's matrix, by its own way back."""
    if quantization == "torchao-int8":
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight = nn.Parameter(weight)
        quantize_(layer, Int8WeightOnlyConfig())
        unpacked: Any = layer.weight
        return unpacked.dequantize()  # type: ignore[no-any-return]
    if quantization == "mxfp4":
        return mxfp4_codes(weight).numbers()  # which test_mxfp4.py looks at
    from bitsandbytes import functional

    if quantization.startswith("int8"):
        codes, highest, _ = functional.int8_vectorwise_quant(weight.half())
        return codes * highest[:, None] / 127
    twice = quantization == "nf4-double"
    return functional.dequantize_4bit(*functional.quantize_4bit(weight, compress_statistics=twice, quant_type="nf4"))


@compiled
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("mixtral", "float32"), ("mixtral", "bfloat16"), ("qwen3 moe", "bfloat16"), ("gpt-oss", "float32")],
)
@pytest.mark.parametrize("quantization", AT_LOAD)
def test_experts_are_what_the_library_makes_of_their_weights(
    name: str, quantization: str, dtype: str, tiny_folder: Callable[[str], Path]
) -> None:
    model = load(ModelSpec(str(tiny_folder(name)), quantization, dtype, "cpu"))
    plain = make_tiny_model(TINY_MODELS[name]).to(model.dtype)
    x = torch.randn(23, 64, generator=torch.Generator().manual_seed(0)).to(model.dtype)
    columns = plain.model.layers[0].mlp.experts.down_proj.shape[1 if name == "gpt-oss" else 2]
    assert model.card.expert_parameters == 2 * 4 * 3 * 64 * columns
    with torch.inference_mode():
        for layer, own in zip(model.module.model.layers, plain.model.layers, strict=True):
            experts = own.mlp.experts
            for weight in (experts.gate_up_proj, experts.down_proj):
                weight = weight.transpose(1, 2) if name == "gpt-oss" else weight
                weight.copy_(torch.stack([rounded(one.contiguous(), quantization) for one in weight]))
            ids, by = torch.rand(23, 4).argsort()[:, :2], torch.rand(23, 2).to(model.dtype)
            held = layer.mlp.experts
            assert isinstance(held, PackedExperts)
            expected = experts(x, ids, by)
            assert (held(x, ids, by) - expected).abs().max() <= NEAR[dtype] * expected.abs().max()


@compiled
@pytest.mark.parametrize(
    ("quantization", "name", "activation"),
    [("nf4-double", "mixtral", SILU), ("int8", "mixtral", SILU), ("mxfp4", "gpt-oss", Activation.CLAMPED)],
)
def test_where_no_kernel_computes_the_models_own_code_does(
    quantization: str, name: str, activation: Activation, tiny_folder: Callable[[str], Path]
) -> None:
    """In float16 none does on a CPU. It says what the compiled kernels say of the same codes, but for rounding."""
    model = load(ModelSpec(str(tiny_folder(name)), quantization, "float16", "cpu"))
    held = model.module.model.layers[0].mlp.experts
    assert isinstance(held, CodedExperts)
    biases = None if held.biases is None else (held.biases[0].float(), held.biases[1].float())
    x, sent, by = torch.randn(9, 64), torch.rand(9, 4).argsort()[:, :2], torch.rand(9, 2)
    weights = ExpertWeights.of_codes(held.gate_up, held.down, 4, LargePages(), biases)
    expected = weights(x, sent, by, activation)
    with torch.inference_mode():
        assert (held(x.half(), sent, by.half()) - expected).abs().max() <= 5e-3 * expected.abs().max()


def test_experts_whose_widths_no_group_divides_stay(tmp_path: Path) -> None:
    save_tiny_model(_llama_like("Mixtral", intermediate_size=80, num_local_experts=4), tmp_path)
    model = load(ModelSpec(str(tmp_path), "nf4", "float32", "cpu"))
    assert inspect_folder(tmp_path, "narrow").experts == 2 * 4 * 3 * 64 * 80
    assert isinstance(model.module.model.layers[0].mlp.experts, PackedExperts)
    assert isinstance(model.module.model.layers[0].mlp.experts.weights.down, Tensor), "no codes"
    with pytest.raises(InvalidInput, match="'mxfp4' is of a mixture's experts, and model type 'mixtral' has none here"):
        load(ModelSpec(str(tmp_path), "mxfp4", "float32", "cpu"))


@pytest.mark.parametrize("of", [".experts.", ".o_proj."])
@pytest.mark.parametrize("quantization", ["nf4", "int8", "torchao-int8"])
def test_a_weight_that_is_no_number_is_refused_by_name(
    quantization: str, of: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    source = tiny_folder("mixtral")
    for file in source.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    name = next(name for name in sorted(weights) if of in name and "layers.1" in name)
    weights[name].view(-1)[5] = float("nan")
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(InvalidInput, match=rf"layers\.1\..*{of[1:-1]}.* holds NaN or infinity; fetch the model again"):
        load(ModelSpec(str(tmp_path), quantization, device="cpu"))


@pytest.fixture
def packed(tiny_folder: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A tiny mixture as an AWQ checkpoint with groups of 32."""
    return lambda name: save_rounded_awq(tiny_folder(name), tmp_path / "awq", 32)


@compiled
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("name", ["mixtral", "qwen3 moe"])
def test_experts_of_an_awq_checkpoint_are_what_their_codes_stand_for(
    name: str, dtype: str, packed: Callable[[str], Path]
) -> None:
    folder = packed(name)
    model = load(ModelSpec(str(folder), "awq", dtype, "cpu"))
    assert model.card.weight_bytes == held_bytes(inspect_folder(folder, name), "awq", dtype, "cpu")
    plain = make_tiny_model(TINY_MODELS[name])
    x = torch.randn(23, 64, generator=torch.Generator().manual_seed(0)).to(model.dtype)
    with torch.inference_mode():
        for layer, own in zip(model.module.model.layers, plain.model.layers, strict=True):
            experts = own.mlp.experts
            for weight in (experts.gate_up_proj, experts.down_proj):
                weight.copy_(torch.stack([dequantize(*round_to_nearest(one, 32), torch.float32) for one in weight]))
            ids, by = torch.rand(23, 4).argsort()[:, :2], torch.rand(23, 2).to(model.dtype)
            assert isinstance(layer.mlp.experts, PackedExperts)
            expected = experts.to(model.dtype)(x, ids, by)
            assert (layer.mlp.experts(x, ids, by) - expected).abs().max() <= NEAR[dtype] * expected.abs().max()


def spoiled(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> ModelSpec:
    """The checkpoint with other weights."""
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return ModelSpec(str(folder), "awq", device="cpu")


EXPERT = "model.layers.1.mlp.experts.2."


def test_an_expert_that_is_not_whole_is_refused_by_name(packed: Callable[[str], Path]) -> None:
    spec = spoiled(packed("qwen3 moe"), lambda weights: weights.pop(f"{EXPERT}up_proj.qweight"))
    with pytest.raises(InvalidInput, match="layer 1: expert 2 has no AWQ weights for its up projection; fetch"):
        load(spec)


def test_an_expert_of_another_size_is_refused_by_name(packed: Callable[[str], Path]) -> None:
    def narrowed(weights: dict[str, Tensor]) -> None:
        weights[f"{EXPERT}down_proj.qweight"] = weights[f"{EXPERT}down_proj.qweight"][:, :4].contiguous()

    with pytest.raises(InvalidInput, match=r"layers\.1\.mlp\.experts\.2\.down_proj are \[\d+, 4\] where"):
        load(spoiled(packed("qwen3 moe"), narrowed))


def test_more_experts_than_the_config_tells_of_are_refused_by_name(packed: Callable[[str], Path]) -> None:
    folder = packed("qwen3 moe")
    change_config(folder, num_experts=2, num_local_experts=2)
    with pytest.raises(InvalidInput, match=r"experts\.[23]\..*, and config.json tells of 2 experts a layer; fetch"):
        load(ModelSpec(str(folder), "awq", device="cpu"))


@pytest.mark.parametrize("quantization", ["nf4", "int8", "torchao-int8"])
def test_experts_of_another_shape_than_the_configs_are_refused_by_name(
    quantization: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_folder("mixtral"), tmp_path / "other")
    change_config(folder, intermediate_size=192)
    with pytest.raises(InvalidInput, match=r"experts\.\w+ is \[4, .*\] where config.json describes \[4, .*; fetch"):
        load(ModelSpec(str(folder), quantization, device="cpu"))


def test_as_much_is_freed_of_each_layer_as_was_read_before_the_next_is_made_ready(
    packed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[weakref.ref[AwqExperts]] = []
    own, there = AwqExperts.__init__, list[int]()

    def watched(self: AwqExperts, *given: Any) -> None:
        own(self, *given)
        read.append(weakref.ref(self))

    ready = AwqExperts.ready
    monkeypatch.setattr(AwqExperts, "__init__", watched)
    counted = lambda self, dtype: (there.append(sum(one() is not None for one in read)), ready(self, dtype))[1]  # noqa: E731
    monkeypatch.setattr(AwqExperts, "ready", counted)
    load(ModelSpec(str(packed("qwen3 moe")), "awq", device="cpu"))
    assert there == [2, 1]


def test_a_weight_beyond_float16_is_held_in_8_bits_all_the_same() -> None:
    weight = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    weight[3, 5] = 1e6
    numbers = eight_bit_codes(weight).numbers()
    assert (numbers - weight).abs().max() <= 1e6 / 127
    assert (numbers[4] - weight[4]).abs().max() <= weight[4].abs().max() * 0.005


def test_experts_in_a_form_that_is_not_known_are_refused_before_they_are_read(packed: Callable[[str], Path]) -> None:
    def renamed(weights: dict[str, Tensor]) -> None:
        for name in [name for name in weights if ".experts." in name]:
            weights[name.replace("gate_proj", "router_proj")] = weights.pop(name)

    spec = spoiled(packed("qwen3 moe"), renamed)
    with pytest.raises(InvalidInput, match=r"experts of this checkpoint are AWQ .*router_proj.* not known here"):
        load(spec)


class Late(threading.Event):
    """Set once it was asked so often."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_load_tells_of_experts_as_they_are_read_and_can_be_cancelled_between_two(
    tiny_folder: Callable[[str], Path],
) -> None:
    spec, told = ModelSpec(str(tiny_folder("mixtral")), "nf4", device="cpu"), list[LoadProgress]()
    never = Late(1_000_000)
    load(spec, told.append, never)
    asked = 1_000_000 - never.left
    assert asked == len(told) + 2 * 4 * 2, "before each expert's gates, and what follows them, of two layers"
    shares = [one.done / one.total for one in told if one.stage == "reading weights"]
    assert shares == sorted(shares)
    assert max(second - first for first, second in pairwise(shares)) < 0.35
    for after in range(2, asked - 2, 4):
        with pytest.raises(LoadCancelled):
            load(spec, cancelled=Late(after))
