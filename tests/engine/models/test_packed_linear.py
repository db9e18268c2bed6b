"""Packed linear layers give what plain ones give, to rounding, whatever the number of rows."""

import pytest
import torch
from torch import nn

from engine.models.packed_linear import PackedLinear, pack_linears


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 16, 64, 300])
@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_layer_multiplies_as_the_plain_one(rows, bias):
    torch.manual_seed(rows)
    plain = nn.Linear(96, 160, bias=bias)
    with torch.inference_mode():
        x = torch.randn(1, rows, 96)
        torch.testing.assert_close(PackedLinear(plain)(x), plain(x), rtol=1e-5, atol=1e-5)


def test_its_weight_can_be_read_back_exactly():
    plain = nn.Linear(33, 17)
    assert torch.equal(PackedLinear(plain).weight, plain.weight)


@pytest.mark.parametrize("halves", [False, True])
def test_only_plain_layers_of_a_dtype_that_the_processor_multiplies_are_packed(monkeypatch, halves):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: halves)

    class Special(nn.Linear):
        pass

    module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, dtype=torch.bfloat16), Special(8, 8), nn.LayerNorm(8))
    pack_linears(module)
    second = PackedLinear if halves else nn.Linear
    assert [type(layer) for layer in module] == [PackedLinear, second, Special, nn.LayerNorm]


def test_a_tied_embedding_keeps_its_weight():
    module = nn.ModuleDict({"embed": nn.Embedding(32, 8), "head": nn.Linear(8, 32, bias=False)})
    module["head"].weight = module["embed"].weight
    pack_linears(module)
    ids = torch.arange(32)
    with torch.inference_mode():
        plain = module["embed"](ids) @ module["embed"].weight.T
        torch.testing.assert_close(module["head"](module["embed"](ids)), plain)
