"""MXFP4: how numbers are rounded to it, and gpt-oss' checkpoints, which hold their experts so."""

from collections.abc import Callable
from math import floor, log2
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, Mxfp4Config

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams
from engine.checkpoints.inspect import inspect_folder
from engine.kernels.cpu.library import native
from engine.memory import DeviceMemory, fits
from engine.models.loading import load
from engine.models.packed_experts import CompiledRouter, PackedExperts
from engine.models.quantization.mxfp4 import mxfp4_codes
from tests.engine.models.quantization.make_mxfp4 import save_rounded_mxfp4
from tests.engine.tiny_models import change_config

GB = 1 << 30
FLOATS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
compiled = pytest.mark.skipif(native().library is None, reason=native().why)


@pytest.fixture(scope="module")
def stored(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_rounded_mxfp4(tiny_folder("gpt-oss"), tmp_path_factory.mktemp("mxfp4") / "gpt-oss")


def nearest(values: list[float]) -> list[float]:
    """A group's, as the specification says, one after another."""
    largest = max(map(abs, values))
    scale = 2.0 ** (floor(log2(largest)) - 2) if largest else 1.0
    found = []
    for value in values:
        apart = [(abs(abs(value) / scale - each), code % 2) for code, each in enumerate(FLOATS)]
        found.append(scale * FLOATS[apart.index(min(apart))] * (-1.0 if value < 0 else 1.0))
    return found


def test_numbers_are_rounded_to_the_nearest_that_there_is() -> None:
    weight = torch.randn(6, 96, generator=torch.Generator().manual_seed(0)).bfloat16().float()
    weight[0] *= torch.arange(-48, 48).exp2()
    weight[1, :32] = 0.0
    weight[2, :32] = torch.tensor([*FLOATS, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.9] * 2)  # as near to two
    weight[3] *= 1e-30
    expected = torch.tensor([[x for group in row.split(32) for x in nearest(group.tolist())] for row in weight])
    codes = mxfp4_codes(weight)
    assert torch.equal(codes.numbers(), expected)
    assert torch.equal(mxfp4_codes(expected).numbers(), expected), "what is rounded stays"
    held = sum(x.numel() * x.element_size() for x in codes.held.values())
    assert held == 6 * 96 // 2 + 6 * 3, "half a byte a weight, one a group"


@compiled
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_published_checkpoint_computes_what_transformers_makes_of_it(dtype: str, stored: Path) -> None:
    """transformers has no kernels for it here, and makes floats of all weights."""
    of = getattr(torch, dtype)
    plain = AutoModelForCausalLM.from_pretrained(stored, quantization_config=Mxfp4Config(dequantize=True), dtype=of)
    model = load(ModelSpec(str(stored), dtype=dtype, device="cpu"))
    assert model.card.quantization == "mxfp4"
    assert model.card.parameters == plain.num_parameters() == inspect_folder(stored, "").parameters
    x = torch.randn(23, 64, generator=torch.Generator().manual_seed(0)).to(of)
    x[3] *= 40  # beyond the bounds of what is gated
    near = 1e-5 if dtype == "float32" else 2e-2
    with torch.inference_mode():
        for own, layer in zip(plain.model.layers, model.module.model.layers, strict=True):
            assert isinstance(layer.mlp.experts, PackedExperts)
            assert isinstance(layer.mlp.router, CompiledRouter)
            _, by, ids = own.mlp.router(x)
            expected = own.mlp.experts(x, ids, by)
            assert (layer.mlp.experts(x, ids, by) - expected).abs().max() <= near * expected.abs().max()
            for told, wanted in zip(layer.mlp.router(x), own.mlp.router(x), strict=True):
                assert (told - wanted).abs().max() <= near * wanted.abs().max()


def test_it_answers_as_transformers_does(stored: Path) -> None:
    plain = AutoModelForCausalLM.from_pretrained(stored, quantization_config=Mxfp4Config(dequantize=True))
    prompt = [5, 9, 77, 3, 21, 8]
    with torch.inference_mode():
        expected = plain.float().generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0, 6:].tolist()
    spec = ModelSpec(str(stored), "mxfp4", "float32", "cpu")
    with Engine(spec, EngineConfig(max_running=2, kv_memory=1 << 24)) as engine:
        params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
        assert list(engine.submit(prompt, params).result(timeout=60).token_ids) == expected


def test_its_bill_is_what_it_takes_and_nothing_else_can_be_made_of_it(stored: Path) -> None:
    info = inspect_folder(stored, "gpt-oss")
    assert info.experts == 2 * (4 * 3 * 64 * 128 + 4 * (2 * 128 + 64))
    room = DeviceMemory("cpu", GB, GB)
    bills = {bill.quantization: bill for bill in fits(info, room, dtype="bfloat16")}
    assert {name for name, bill in bills.items() if not bill.available} == {"none", "mxfp4"}
    assert bills["nf4"].available == "this checkpoint is MXFP4 already: nothing to quantize"
    assert bills["none"].note == "this checkpoint is MXFP4, and is loaded as such"
    model = load(ModelSpec(str(stored), dtype="bfloat16", device="cpu"))
    assert bills["none"].weights == bills["mxfp4"].weights == pytest.approx(model.card.weight_bytes, rel=1e-3)
    with pytest.raises(InvalidInput, match=r"quantized already, as MXFP4, .*choose none or mxfp4, or use the original"):
        load(ModelSpec(str(stored), "nf4", device="cpu"))


def test_a_mixture_is_made_so_at_load_and_other_models_are_refused(tiny_folder: Callable[[str], Path]) -> None:
    info, room = inspect_folder(tiny_folder("qwen3 moe"), "moe"), DeviceMemory("cpu", GB, GB)
    (bill,) = fits(info, room, quantizations=["mxfp4"])
    model = load(ModelSpec(str(tiny_folder("qwen3 moe")), "mxfp4", device="cpu"))
    assert bill.weights == pytest.approx(model.card.weight_bytes, rel=1e-3)
    assert not fits(inspect_folder(tiny_folder("llama"), "llama"), room, quantizations=["mxfp4"])
    with pytest.raises(InvalidInput, match=r"model type 'llama' has none here .* choose nf4"):
        load(ModelSpec(str(tiny_folder("llama")), "mxfp4", device="cpu"))


def spoiled(folder: Path, to: Path, change: Callable[[dict[str, Tensor]], None]) -> Path:
    """The checkpoint with other weights."""
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    weights = load_file(to / "model.safetensors")
    change(weights)
    save_file(weights, to / "model.safetensors", {"format": "pt"})
    return to


OF_EXPERTS = "model.layers.1.mlp.experts.down_proj_"


def no_number(weights: dict[str, Tensor]) -> None:
    weights[f"{OF_EXPERTS}scales"][2, 5, 1] = 255


def narrower(weights: dict[str, Tensor]) -> None:
    weights[f"{OF_EXPERTS}blocks"] = weights[f"{OF_EXPERTS}blocks"][..., :8].contiguous()


def without_scales(weights: dict[str, Tensor]) -> None:
    del weights[f"{OF_EXPERTS}scales"]


def fewer(weights: dict[str, Tensor]) -> None:
    for what in ("blocks", "scales"):
        weights[f"{OF_EXPERTS}{what}"] = weights[f"{OF_EXPERTS}{what}"][:3].contiguous()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (no_number, r"layers\.1\.mlp\.experts\.down_proj_scales holds NaN; fetch the model again"),
        (narrower, r"layers\.1\.mlp\.experts\.down_proj_blocks are \[4, 64, 4, 8\] .* 16 bytes and a scale; fetch"),
        (without_scales, r"down_proj_blocks are \[4, 64, 4, 16\] and their scales \[\]"),
        (fewer, "its weights are not those of the model that config.json describes"),
    ],
)
def test_a_broken_checkpoint_is_refused_by_name(
    change: Callable[[dict[str, Tensor]], None], words: str, stored: Path, tmp_path: Path
) -> None:
    folder = spoiled(stored, tmp_path, change)
    with pytest.raises(InvalidInput, match=words):
        load(ModelSpec(str(folder), device="cpu"))


def test_a_config_that_promises_it_of_plain_weights_is_refused(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = spoiled(tiny_folder("gpt-oss"), tmp_path, lambda weights: None)
    change_config(folder, quantization_config={"quant_method": "mxfp4"})
    with pytest.raises(InvalidInput, match=r"config\.json says MXFP4, but no experts are packed as gpt-oss has them"):
        load(ModelSpec(str(folder), device="cpu"))
    (bill,) = fits(inspect_folder(folder, ""), DeviceMemory("cpu", GB, GB), quantizations=["none"])
    assert "no experts are packed" in bill.available
