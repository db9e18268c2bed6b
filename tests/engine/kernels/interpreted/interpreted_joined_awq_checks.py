"""Checks of AWQ layers that are joined to one product, which `test_interpreted.py` runs with TRITON_INTERPRET=1."""

import os

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.bench.rounding import round_to_nearest
from engine.kernels.jit import launched
from engine.kernels.products.awq_matmul import FUSED_ROWS
from engine.models.fusion import awq_products
from engine.models.fusion.awq_products import Awq
from engine.models.fusion.fuse import fuse
from engine.models.quantization.awq_linear import AwqLinear, TiledAwqLinear
from engine.models.weight_count import held_bytes
from tests.engine.fusing_case import all_kernels, difference, logits, served

JOINED = 5  # layers of the one decoder layer, whose products are joined
HEAD = 1  # which is not packed


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def awq_model(name: str, **groups: int) -> PreTrainedModel:
    """One decoder layer in float16, whose layers hold packed weights in groups of 32, or of what is given by name."""
    module = served(name, torch.float16, layers=1)
    for path, linear in list(module.named_modules()):
        if type(linear) is nn.Linear and linear is not module.get_output_embeddings():
            group = groups.get(path.rpartition(".")[2], 32)
            layer = AwqLinear(linear.in_features, linear.out_features, group, None)
            layer.qweight, layer.qzeros, layer.scales = round_to_nearest(linear.weight, group)
            layer.bias = linear.bias
            module.set_submodule(path, TiledAwqLinear(layer))
    return module


@pytest.fixture(scope="module")
def joined() -> nn.Module:
    """The decoder layer of a model whose products are joined."""
    module = awq_model("llama")
    assert all_kernels(fuse(module))["product"] == JOINED + HEAD
    layer = module.model.layers[0]
    assert isinstance(layer, nn.Module)
    return layer


def test_packed_layers_of_one_input_are_one_product_and_can_be_undone() -> None:
    module = awq_model("qwen2")  # whose layers have biases
    before, held = logits(module), held_bytes(module)
    fusion = fuse(module)
    assert all_kernels(fusion)["product"] == JOINED + HEAD, fusion.text
    assert f"product of {JOINED} TiledAwqLinear" in fusion.text
    assert held_bytes(module) == held
    assert difference(logits(module), before) < 1e-2
    fusion.undo()
    assert torch.equal(logits(module), before)


def test_a_joined_product_is_one_launch(joined: nn.Module) -> None:
    attention = joined.self_attn
    x = torch.randn(3, 64).half()
    with torch.inference_mode():
        launches = launched(lambda: [attention.q_proj(x), attention.k_proj(x), attention.v_proj(x)])
    assert [launch.kernel.fn.__name__ for launch in launches].count("awq_matmul_kernel") == 1


def test_each_layer_still_multiplies_by_itself_where_its_columns_lie(joined: nn.Module) -> None:
    layer = joined.self_attn.v_proj
    assert not layer.scales.is_contiguous()
    for rows in (1, 20, FUSED_ROWS + 1):
        x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(rows)).half()
        alone = awq_products.awq_matmul(x, layer.tiles, layer.scales)
        expected = x.double() @ layer.weight_in(torch.float32).double().t()
        torch.testing.assert_close(alone.double(), expected, rtol=2e-3, atol=2e-3 * float(expected.abs().max()))


def test_layers_of_several_groups_are_left_with_the_reason() -> None:
    module = awq_model("llama", k_proj=16)
    before = logits(module)
    fusion = fuse(module)
    assert fusion.left["LlamaAttention", "their groups are of several sizes"] == 1
    assert all_kernels(fusion)["product"] == 2 + HEAD
    assert difference(logits(module), before) < 1e-2


def test_products_that_disagree_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Awq.multiply

    def wrong(self: Awq, x: Tensor) -> Tensor:
        return right(self, x) * 1.01

    module = awq_model("llama")
    before = logits(module)
    monkeypatch.setattr(Awq, "multiply", wrong)
    fusion = fuse(module)
    assert all_kernels(fusion)["product"] == HEAD
    assert sum(count for (_, why), count in fusion.left.items() if "something else" in why) == 2
    fusion.undo()
    assert torch.equal(logits(module), before)
