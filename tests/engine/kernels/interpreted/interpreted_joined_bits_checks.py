"""Checks of bitsandbytes' layers that are joined to one product, which `test_interpreted.py` runs with
TRITON_INTERPRET=1."""

import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)
if find_spec("bitsandbytes") is None:
    pytest.skip("bitsandbytes is not here", allow_module_level=True)

from engine.kernels.jit import launched
from engine.kernels.products.four_bits import FEW_ROWS, four_bit_matmul_kernel
from engine.models.fusion.fuse import fuse
from engine.models.quantization.bitsandbytes import library
from engine.models.weight_count import held_bytes
from tests.engine.fusing_case import all_kernels, difference, logits, served

JOINED = 5  # layers of the one decoder layer, whose products are joined
SINGLE = 2  # others of theirs
HEAD = 1  # which no quantizer takes
bits = library().nn


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def quantized(linear: nn.Linear, quantization: str) -> Any:
    sizes = linear.in_features, linear.out_features
    if quantization.startswith("int8"):
        threshold = 6.0 if quantization == "int8" else 0.0
        layer: Any = bits.Linear8bitLt(*sizes, bias=False, has_fp16_weights=False, threshold=threshold)
        layer.weight = bits.Int8Params(linear.weight.data, requires_grad=False, has_fp16_weights=False).to("cpu")
    else:
        layer = bits.Linear4bit(*sizes, bias=False, compute_dtype=torch.float16, quant_type="nf4")
        double = quantization == "nf4-double"
        weight = bits.Params4bit(linear.weight.data, requires_grad=False, compress_statistics=double, quant_type="nf4")
        layer.weight = weight.to("cpu")
        layer.support_avx512bf16_for_cpu = False  # laid out as on a GPU
    layer.bias = linear.bias
    return layer.eval()


def model_of(quantization: str, name: str) -> PreTrainedModel:
    """One decoder layer in float16 with bitsandbytes' layers as they are on a GPU."""
    module = served(name, torch.float16, layers=1)
    for path, linear in list(module.named_modules()):
        if type(linear) is nn.Linear and linear is not module.get_output_embeddings():
            module.set_submodule(path, quantized(linear, quantization))
    return module


@pytest.mark.parametrize(("quantization", "name"), [("nf4", "llama"), ("int8-plain", "llama"), ("int8", "qwen2")])
def test_quantized_layers_of_one_input_are_one_product_and_can_be_undone(quantization: str, name: str) -> None:
    module = model_of(quantization, name)
    before = logits(module)
    held = held_bytes(module)
    fusion = fuse(module)
    assert all_kernels(fusion)["product"] == JOINED + HEAD + (SINGLE if quantization == "nf4" else 0), fusion.text
    assert all_kernels(fusion)["gated product"] == (1 if quantization == "nf4" else 0), fusion.text
    assert held_bytes(module) == held
    assert difference(logits(module), before) < 2e-2
    fusion.undo()
    assert torch.equal(logits(module), before)


def test_scales_that_are_quantized_too_keep_the_layers_apart_and_that_is_said() -> None:
    module = model_of("nf4-double", "llama")
    before = logits(module)
    fusion = fuse(module)
    why = "their scales are quantized too, around a mean of each layer's own"
    assert fusion.left["LlamaAttention", why] == fusion.left["LlamaMLP", why] == 1
    assert all_kernels(fusion)["product"] == HEAD
    fusion.undo()
    assert torch.equal(logits(module), before)


def test_few_rows_of_4_bit_layers_are_multiplied_by_our_kernel_and_many_by_bitsandbytes() -> None:
    module = model_of("nf4", "qwen2")  # whose layers have biases
    fuse(module)
    attention, mlp = module.model.layers[0].self_attn, module.model.layers[0].mlp
    for layer in (attention.q_proj, attention.o_proj, mlp.up_proj, mlp.down_proj):
        own = type(layer).__mro__[1].forward
        for rows, launches in ((1, 1), (FEW_ROWS, 1), (FEW_ROWS + 1, 0)):
            x = torch.randn(1, rows, layer.in_features, generator=torch.Generator().manual_seed(rows)).half()
            with torch.inference_mode():
                made, expected = layer(x), own(layer, x)
                found = launched(layer, x.clone())
            torch.testing.assert_close(made, expected, rtol=2e-3, atol=2e-3 * float(expected.abs().max()))
            assert [each.kernel for each in found] == [four_bit_matmul_kernel] * launches
