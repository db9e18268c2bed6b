"""Each quantization loads, is what its name says, takes the bytes that are told of it, and counts true weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import Engine, EngineConfig, ModelSpec, SamplingParams
from engine.bench.bars import no_bars
from engine.bench.cpu.rounded_awq import save_rounded_awq
from engine.config import OF_LAYERS, quantized_bytes
from engine.kernels.cpu import library
from engine.kernels.cpu.compiler import SWITCH
from engine.kernels.cpu.library import Native, native
from engine.models.loading import LoadedModel, load
from engine.models.packed_linear import OurCoded, PackedLinear
from engine.models.quantization import torchao
from engine.models.quantization.bitsandbytes import Dequantized4bitLinear
from engine.models.weight_count import held_bytes
from engine.workloads import Arrival, Workload
from tests.engine.tiny_models import VOCABULARY, TinyModel, _llama_like, save_tiny_model

AT_LOAD = tuple(name for name in OF_LAYERS if name not in ("none", "awq"))
LAYER = [(64, 64)] * 2 + [(64, 32)] * 2 + [(64, 128)] * 2 + [(128, 64)]  # inputs, outputs: tiny Llama's
SHAPES = LAYER * 2
BODY = sum(inputs * outputs for inputs, outputs in SHAPES)
NORMS = 5 * 64
GREEDY = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def llama(tiny_folder: Callable[[str], Path]) -> Path:
    return tiny_folder("llama")


@pytest.fixture(scope="module")
def awq(llama: Path) -> Path:
    with no_bars():
        return save_rounded_awq(llama, llama.with_name("llama rounded awq"), group=32)


compiled = pytest.mark.skipif(native().library is None, reason=native().why)


def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no C compiler is."""
    monkeypatch.setattr(library, "_native", Native(None, "left out"))
    monkeypatch.setenv(SWITCH, "0")


def loaded(folder: Path, quantization: str, dtype: str = "auto") -> LoadedModel:
    return load(ModelSpec(str(folder), quantization, dtype, "cpu"))


def linear(model: LoadedModel) -> Any:
    return model.module.model.layers[1].mlp.down_proj


@pytest.mark.parametrize("quantization", OF_LAYERS)
@pytest.mark.parametrize("dtype", ["auto", "float32", "float16"])
def test_the_card_counts_true_weights_whatever_holds_them(
    quantization: str, dtype: str, llama: Path, awq: Path
) -> None:
    model = loaded(awq if quantization == "awq" else llama, quantization, dtype)
    card = model.card
    assert card.quantization == quantization
    assert card.dtype == {"auto": "float32" if quantization == "none" else "bfloat16"}.get(dtype, dtype)
    assert card.parameters == BODY + 2 * 64 * VOCABULARY + NORMS
    assert (card.body_parameters, card.head_parameters) == (BODY, 64 * VOCABULARY)
    assert card.weight_bytes == held_bytes(model.module)
    others = (2 * 64 * VOCABULARY + NORMS) * model.dtype.itemsize
    assert card.bytes_per_weight * BODY == pytest.approx(card.weight_bytes - others)


@pytest.mark.parametrize("quantization", ["none", *AT_LOAD])
def test_weights_take_the_bytes_of_the_formula_exactly(
    quantization: str, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the quantizer stores them, where no compiled kernel multiplies them in another layout."""
    without_kernels(monkeypatch)
    model = loaded(llama, quantization, "float32")
    others = (2 * 64 * VOCABULARY + NORMS) * 4
    assert model.card.weight_bytes == quantized_bytes(quantization, SHAPES, 4) + others


HELD = {
    "awq": BODY // 2 + 4 * BODY // 32,
    "int8": BODY + 4 * sum(outputs for _, outputs in SHAPES),
    "int8-plain": BODY + 4 * sum(outputs for _, outputs in SHAPES),
    "nf4": BODY // 2 + 4 * BODY // 64,
    "nf4-double": BODY // 2 + BODY // 64 + sum(8 * -(-a * b // 64 // 256) + 4 * b for a, b in SHAPES),
    "torchao-int8": BODY + 4 * sum(outputs for _, outputs in SHAPES),
}


@compiled
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("quantization", HELD)
def test_codes_stay_packed_in_either_dtype(quantization: str, dtype: str, llama: Path, awq: Path) -> None:
    model = loaded(awq if quantization == "awq" else llama, "none" if quantization == "awq" else quantization, dtype)
    others = (2 * 64 * VOCABULARY + NORMS) * model.dtype.itemsize
    assert model.card.weight_bytes == HELD[quantization] + others
    assert isinstance(linear(model).packed, OurCoded)


@compiled
@pytest.mark.parametrize("quantization", HELD)
def test_steps_of_codes_are_recorded_like_dense_ones(quantization: str, llama: Path, awq: Path) -> None:
    """Queries, keys and values are one product, gates and ups too, and it tells the bytes that it reads."""
    model = loaded(awq if quantization == "awq" else llama, "none" if quantization == "awq" else quantization)
    with Engine(model, EngineConfig(max_running=2), threads=1) as engine:
        trace = engine.run(Workload("one", (Arrival(0.0, [3, 4, 5], GREEDY),))).result()
    kernels = trace.header.kernels
    assert kernels is not None
    layers = {"q_proj, k_proj, v_proj", "o_proj", "gate_proj, up_proj", "down_proj"}
    assert {name for name, weights in zip(kernels.names, kernels.weights) if weights} == {*layers, "lm_head"}
    read = sum(size for name, size in zip(kernels.names, kernels.bytes) if name in layers)
    apart = 4 * sum(outputs for _, outputs in SHAPES) + 8 * len(SHAPES) if quantization == "nf4-double" else 0
    assert read == HELD[quantization] - apart  # what scales of scales take is not counted


def test_without_the_compiled_kernels_awq_is_unpacked_at_load(awq: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_kernels(monkeypatch)
    others = (2 * 64 * VOCABULARY + NORMS) * 4
    assert loaded(awq, "none", "float32").card.weight_bytes == others + 4 * BODY


@compiled
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("quantization", AT_LOAD)
def test_what_is_multiplied_is_the_weight_that_the_quantizer_made(
    quantization: str, dtype: str, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = linear(loaded(llama, quantization, dtype)).weight
    without_kernels(monkeypatch)
    theirs = linear(loaded(llama, quantization, dtype))
    assert torch.equal(ours, dequantized(theirs))


def dequantized(layer: Any) -> torch.Tensor:
    """A quantizer's weight in float32."""
    weight = layer.weight
    if hasattr(layer, "state"):  # where bitsandbytes has the codes once a layer was called
        return layer.state.CB * (layer.state.SCB[:, None] / 127)
    if hasattr(weight, "quant_state"):
        from bitsandbytes.functional import dequantize_4bit

        weight.quant_state.dtype = torch.float32
        return dequantize_4bit(weight.data, weight.quant_state)
    return weight.dequantize(torch.float32)


@pytest.mark.parametrize("quantization", ["nf4", "nf4-double"])
@pytest.mark.parametrize("rows", [1, 5, 200])
def test_in_float32_a_4_bit_product_is_that_of_its_weights_in_float32(
    quantization: str, rows: int, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bitsandbytes' own layer would compute it in bfloat16, some thousand times coarser."""
    without_kernels(monkeypatch)
    layer = linear(loaded(llama, quantization, "float32"))
    assert isinstance(layer, Dequantized4bitLinear)
    x = torch.randn(rows, 128, generator=torch.Generator().manual_seed(rows))
    exact = x.double() @ dequantized(layer).double().T
    torch.testing.assert_close(layer(x).double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 5, 200])
@pytest.mark.parametrize("has_products", [False, True])
def test_in_bfloat16_an_int8_product_is_that_of_its_weights_whatever_the_processor_multiplies(
    has_products: bool, rows: int, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_kernels(monkeypatch)
    monkeypatch.setattr(torchao, "wanted", lambda dtype: dtype if has_products else torch.float32)
    layer = linear(loaded(llama, "torchao-int8"))
    assert isinstance(layer, torchao.CodesLinear) is not has_products
    weight, x = layer.weight.dequantize(torch.float32), torch.randn(rows, 128).bfloat16()
    with torch.inference_mode():
        out = layer(x)
    assert out.dtype is torch.bfloat16
    torch.testing.assert_close(out.double(), x.double() @ weight.double().T, rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize(
    ("quantization", "worst"), [("int8", 0.01), ("int8-plain", 0.01), ("torchao-int8", 0.01), ("nf4", 0.1)]
)
def test_quantized_products_are_near_those_of_the_original(quantization: str, worst: float, llama: Path) -> None:
    original, layer = linear(loaded(llama, "none")), linear(loaded(llama, quantization, "float32"))
    assert isinstance(original, PackedLinear)
    ours = isinstance(layer, PackedLinear) and isinstance(layer.packed, OurCoded)
    assert ours == (native().library is not None), "what a quantizer made, and we do not multiply, is left to it"
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(1))
    x[:, 7] *= 20  # an outlier
    with torch.inference_mode():
        exact, near = original(x), layer(x)
    assert 1e-4 < (near - exact).norm() / exact.norm() < worst * (8 if quantization == "int8-plain" else 1)


def test_columns_of_outliers_are_kept_apart_only_where_the_threshold_says_so(llama: Path) -> None:
    x = torch.randn(16, 128, generator=torch.Generator().manual_seed(1))
    x[:, 7] *= 50
    with torch.inference_mode():
        exact = linear(loaded(llama, "none"))(x)
        worse, better = ((linear(loaded(llama, name, "float32"))(x) - exact).norm() for name in ("int8-plain", "int8"))
    assert better < worse / 3


@pytest.mark.parametrize("quantization", AT_LOAD)
@pytest.mark.parametrize("name", ["qwen2", "gpt2", "phi3", "gemma3", "qwen3 moe", "opt"])
def test_other_architectures_load_and_generate(
    name: str, quantization: str, tiny_folder: Callable[[str], Path]
) -> None:
    """Biases, Conv1D layers, fused projections, experts."""
    with Engine(ModelSpec(str(tiny_folder(name)), quantization, device="cpu"), EngineConfig(), threads=1) as engine:
        assert engine.card.quantization == quantization
        assert len(engine.submit([5, 6, 7], GREEDY).result(timeout=60).token_ids) == 8


@pytest.mark.parametrize("quantization", AT_LOAD)
def test_sizes_that_no_fused_product_takes_load_and_generate(quantization: str, tmp_path: Path) -> None:
    odd: TinyModel = _llama_like("Llama", hidden_size=72, head_dim=18, intermediate_size=100, vocab_size=VOCABULARY)
    with no_bars():
        save_tiny_model(odd, tmp_path)
    with Engine(ModelSpec(str(tmp_path), quantization, device="cpu"), EngineConfig(), threads=1) as engine:
        assert len(engine.submit([5, 6, 7], GREEDY).result(timeout=60).token_ids) == 8


def test_a_tied_output_layer_is_not_quantized(tmp_path: Path) -> None:
    with no_bars():
        save_tiny_model(_llama_like("Llama", tie_word_embeddings=True), tmp_path)
    model = loaded(tmp_path, "nf4")
    assert torch.equal(model.module.lm_head.weight, model.module.model.embed_tokens.weight)
    assert model.card.parameters == BODY + 64 * VOCABULARY + NORMS
    assert model.card.head_parameters == 64 * VOCABULARY
