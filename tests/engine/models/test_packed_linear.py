"""Packed linear layers give what plain ones give, to rounding, whatever the number of rows."""

import pytest
import torch
from torch import nn

from engine.kernels.cpu import calls
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.cpu.library import native
from engine.models.packed_linear import PackedLinear, pack_linears


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 16, 64, 300])
@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_layer_multiplies_as_the_plain_one(rows, bias):
    torch.manual_seed(rows)
    plain = nn.Linear(96, 160, bias=bias)
    with torch.inference_mode():
        x = torch.randn(1, rows, 96)
        torch.testing.assert_close(PackedLinear(plain, LargePages())(x), plain(x), rtol=1e-5, atol=1e-5)


def test_its_weight_can_be_read_back_exactly():
    plain = nn.Linear(33, 17)
    assert torch.equal(PackedLinear(plain, LargePages()).weight, plain.weight)


HALVES = torch.ops.mkldnn._is_mkldnn_bf16_supported()


@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize("halves", [False, True])
def test_only_plain_layers_of_a_dtype_that_is_multiplied_here_are_packed(monkeypatch, halves, ours):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: halves)
    if ours and native().library is None:
        pytest.skip(native().why)
    if not ours:
        if halves and not HALVES:
            pytest.skip("this processor does not multiply bfloat16, and oneDNN refuses it")
        monkeypatch.setattr(calls, "multiplies", lambda weight: False)

    class Special(nn.Linear):
        pass

    module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, dtype=torch.bfloat16), Special(8, 8), nn.LayerNorm(8))
    pack_linears(module)
    second = PackedLinear if halves or ours else nn.Linear
    assert [type(layer) for layer in module] == [PackedLinear, second, Special, nn.LayerNorm]


def test_a_tied_embedding_keeps_its_weight():
    module = nn.ModuleDict({"embed": nn.Embedding(32, 8), "head": nn.Linear(8, 32, bias=False)})
    module["head"].weight = module["embed"].weight
    pack_linears(module)
    ids = torch.arange(32)
    with torch.inference_mode():
        plain = module["embed"](ids) @ module["embed"].weight.T
        torch.testing.assert_close(module["head"](module["embed"](ids)), plain)
