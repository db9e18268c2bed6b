"""Experts that our kernels are proved for take the place of transformers' own; all others stay."""

import weakref

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

from engine.bench.subject import plain_tokenizer
from engine.kernels.cpu.library import native
from engine.kernels.silu_mul import Activation
from engine.models.fusion.fuse import short_logits
from engine.models.loading import wrap
from engine.models.packed_experts import CompiledRouter, PackedExperts, pack_experts
from engine.models.weight_count import held_bytes
from tests.engine.tiny_models import TINY_MODELS, VOCABULARY, make_tiny_model

pytestmark = pytest.mark.skipif(native().library is None, reason=native().why)
NEAR = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("name", ["mixtral", "qwen3 moe", "gpt-oss"])
def test_a_mixture_computes_the_same_and_its_plain_weights_are_freed(name: str, dtype: torch.dtype) -> None:
    plain = make_tiny_model(TINY_MODELS[name]).to(dtype)
    served = make_tiny_model(TINY_MODELS[name]).to(dtype)
    where = "router" if name == "gpt-oss" else "gate"
    layers = [(layer.mlp.experts, getattr(layer.mlp, where)) for layer in plain.model.layers]
    freed = [weakref.ref(layer.mlp.experts.gate_up_proj) for layer in served.model.layers]
    model = wrap(served, plain_tokenizer(VOCABULARY), name)
    assert not any(weight() is not None for weight in freed)
    x = torch.randn(9, 64, dtype=dtype)
    with torch.inference_mode():
        for layer, (experts, router) in zip(served.model.layers, layers, strict=True):
            ours = getattr(layer.mlp, where)
            assert (type(layer.mlp.experts), type(ours)) == (PackedExperts, CompiledRouter)
            logits, weights, ids = router(x)
            told = ours(x)
            assert [one.dtype for one in told] == [logits.dtype, weights.dtype, ids.dtype]
            made, expected = layer.mlp.experts(x, ids, weights), experts(x, ids, weights)
            assert (made - expected).abs().max() <= NEAR[dtype] * expected.abs().max()
    assert held_bytes(served) == model.card.weight_bytes == pytest.approx(held_bytes(plain), rel=1e-3)


class Bounded(nn.Module):
    """As of models that bound what a gate lets through."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(x).clamp(max=7.0)


def mixture(act: nn.Module | None = None) -> nn.Module:
    """A block whose experts have this activation."""
    model = make_tiny_model(TINY_MODELS["mixtral"])
    block: nn.Module = model.model.layers[0].mlp
    if act is not None:
        block.experts.act_fn = act
    return block


def test_an_activation_is_found_by_what_it_does() -> None:
    for name, expected in (("gelu_pytorch_tanh", Activation.GELU_TANH), ("silu", Activation.SILU)):
        block = mixture(ACT2FN[name])
        pack_experts(block)
        assert isinstance(block.experts, PackedExperts)
        assert block.experts.activation is expected


def test_what_computes_something_else_stays() -> None:
    for act in (Bounded(), nn.ReLU(), nn.GELU()):
        block = mixture(act)
        pack_experts(block)
        assert (type(block.experts), type(block.gate)) == (MixtralExperts, CompiledRouter)
    block = mixture()
    own = block.gate.forward
    block.gate.forward = lambda x: (own(x)[0], own(x)[1] * 1.5, own(x)[2])
    pack_experts(block)
    assert isinstance(block.experts, PackedExperts)
    assert not isinstance(block.gate, CompiledRouter)


def test_weights_of_another_kind_stay() -> None:
    class Coded(nn.Parameter):
        """As a quantizer makes them."""

    block = mixture()
    block.experts.down_proj = Coded(block.experts.down_proj.detach())
    pack_experts(block)
    assert isinstance(block.experts, MixtralExperts)
    other = make_tiny_model(TINY_MODELS["gpt-oss"])
    for layer in other.model.layers:
        layer.mlp.experts.limit = 6.0
    before = short_logits(other)
    pack_experts(other)
    assert not any(isinstance(part, PackedExperts) for part in other.modules())
    assert (short_logits(other) - before).abs().max() < 1e-5, "its router may be ours"
    half = mixture().to(torch.float16)
    pack_experts(half)
    assert isinstance(half.experts, MixtralExperts)
