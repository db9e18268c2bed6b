"""Checks of fused models that `test_interpreted.py` runs with TRITON_INTERPRET=1, in a process of their own."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine import ModelSpec
from engine.bench.bars import no_bars
from engine.bench.cpu.rounded_awq import save_rounded_awq
from engine.models.fusion import parts as fused_parts
from engine.models.fusion import products
from engine.models.fusion.fuse import Causal, fuse
from engine.models.fusion.kernels import kernels_for
from engine.models.fusion.kinds import fuse_part
from engine.models.fusion.parts import LeftAlone, Setting
from engine.models.fusion.products import Dense
from engine.models.loading import load
from tests.engine.fusing_case import FUSED, all_kernels, by_kernel, check_fused, classes, difference, logits, served
from tests.engine.tiny_models import TINY_MODELS, save_tiny_model

SETTING = Setting(torch.float16, torch.device("cpu"))


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_every_tiny_model_has_an_expectation() -> None:
    assert FUSED.keys() == TINY_MODELS.keys()


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_model_differs_by_rounding_and_can_be_undone(name: str) -> None:
    check_fused(name, torch.float32)


@pytest.mark.parametrize("name", ["llama", "gemma2", "olmo2"])
def test_a_fused_model_in_float16_differs_by_rounding_and_can_be_undone(name: str) -> None:
    check_fused(name, torch.float16)


def test_where_gradients_are_asked_for_transformers_own_code_runs() -> None:
    module = served("qwen3")
    before = logits(module)
    assert fuse(module).fused
    ids = torch.arange(7)[None]
    out = module(input_ids=ids, position_ids=ids, use_cache=False, batch=Causal()).logits
    out.sum().backward()
    assert all(parameter.grad is not None for name, parameter in module.named_parameters() if "norm" in name)
    assert not torch.equal(logits(module), before)


def test_what_fails_in_the_whole_model_is_put_back_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    module = served("llama")
    own, before = classes(module), logits(module)
    right = kernels_for("cpu", torch.float32)
    assert right is not None

    def wrong_for_sequences(x: torch.Tensor, *rest: object) -> torch.Tensor:  # parts are proved on rows
        return right.rms_norm(x, *rest) * (1.0 if x.dim() == 2 else torch.linspace(0.5, 2, x.shape[-1]))

    wrong = replace(right, rms_norm=wrong_for_sequences)
    monkeypatch.setattr(fused_parts, "kernels_for", lambda *_: wrong)
    fusion = fuse(module)
    assert "logits differ" in fusion.undone
    assert "put back" in fusion.text
    assert not fusion.fused
    assert classes(module) == own
    assert torch.equal(logits(module), before)


@pytest.mark.parametrize("kernel", ["rms_norm", "act_mul", "rotate"])
def test_a_part_whose_kernel_disagrees_or_fails_stays_as_it_is(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noun = {"rms_norm": "norm", "act_mul": "gate", "rotate": "rotation"}[kernel]
    kernels = kernels_for("cpu", torch.float32)
    right = getattr(kernels, kernel)

    def off(*arguments: object) -> object:
        out = right(*arguments)
        return tuple(x * 1.01 for x in out) if isinstance(out, tuple) else out * 1.01

    def fails(*_: object) -> object:
        raise RuntimeError("no compiler")

    for broken in (off, fails):
        ours = replace(kernels, **{kernel: broken})
        monkeypatch.setattr(fused_parts, "kernels_for", lambda *_, ours=ours: ours)
        module = served("llama")
        before = logits(module)
        fusion = fuse(module)
        assert by_kernel(fusion) == {key: count for key, count in FUSED["llama"].items() if key != noun}
        assert sum(fusion.left.values()) == FUSED["llama"][noun]
        assert difference(logits(module), before) < 1e-5


@pytest.mark.parametrize("broken", ["wrong", "failing"])
def test_layers_whose_sums_disagree_or_fail_stay_as_they_are(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels_for("cpu", torch.float32)
    assert right is not None
    assert right.add_norm is not None

    def ours(x: torch.Tensor, residual: torch.Tensor, *rest: object) -> tuple[torch.Tensor, torch.Tensor]:
        if broken == "failing":
            raise RuntimeError("no compiler")
        return right.add_norm(x, residual * 0.9, *rest)

    monkeypatch.setattr(fused_parts, "kernels_for", lambda *_: replace(right, add_norm=ours))
    module = served("gemma3")
    before = logits(module)
    fusion = fuse(module)
    why = {"wrong": "logits differ", "failing": "no compiler"}[broken]
    assert [(count, why in told) for (_, told), count in fusion.left.items()] == [(3, True)]
    assert by_kernel(fusion) == FUSED["gemma3"]
    assert "residual" not in all_kernels(fusion)
    assert difference(logits(module), before) < 1e-5


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_under_another_attention_nothing_is_put_off(name: str) -> None:
    module = served(name)
    fusion = fuse(module)
    assert all_kernels(fusion)["placing"]
    ids = torch.arange(5, 12)[None]
    found = []
    for _ in range(2):
        module.set_attn_implementation("eager")
        with torch.inference_mode():
            found.append(module(input_ids=ids, use_cache=False).logits)
        fusion.undo()
    assert difference(*found) < 1e-5


@pytest.mark.parametrize("broken", ["wrong", "failing"])
def test_keys_that_are_placed_wrongly_are_not_put_off(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels_for("cpu", torch.float32)
    assert right is not None
    assert right.place_kv is not None

    def ours(q: torch.Tensor, k: torch.Tensor, *rest: object) -> torch.Tensor:
        if broken == "failing":
            raise RuntimeError("no compiler")
        return right.place_kv(q, k.flip(0), *rest)

    monkeypatch.setattr(fused_parts, "kernels_for", lambda *_: replace(right, place_kv=ours))
    module = served("qwen3")
    before = logits(module)
    fusion = fuse(module)
    why = {"wrong": "logits differ", "failing": "no compiler"}[broken]
    assert {count: why in told for (_, told), count in fusion.left.items()} == {2: True, 4: True}
    assert "placing" not in all_kernels(fusion)
    assert by_kernel(fusion) == FUSED["qwen3"]
    assert difference(logits(module), before) < 1e-5


def test_products_that_disagree_or_find_no_memory_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("full")

    right = Dense.multiply
    ways = {
        "computes something else": (Dense, "multiply", lambda self, x: right(self, x) * 1.01),
        "memory": (products, "join_parameters", full),
    }
    for why, (cls, name, broken) in ways.items():
        module = served("qwen2")
        before = logits(module)
        with monkeypatch.context() as patch:
            patch.setattr(cls, name, broken)
            fusion = fuse(module)
        assert "product" not in all_kernels(fusion)
        assert sum(count for (_, told), count in fusion.left.items() if why in told) == 4
        assert by_kernel(fusion) == FUSED["qwen2"]
        fusion.undo()
        assert torch.equal(logits(module), before)


def test_a_joined_layers_weight_is_still_its_own() -> None:
    module = served("llama")
    assert all_kernels(fuse(module))["product"] == 10
    linear = module.model.layers[0].self_attn.k_proj
    x = torch.randn(3, 64)
    with torch.inference_mode():
        torch.testing.assert_close(linear(x), x @ linear.weight.T)
        linear.weight.zero_()
        assert not linear(x.clone()).any()


def test_a_gate_that_is_wrong_far_out_alone_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels_for("cpu", torch.float32)
    assert right is not None
    wrong = replace(right, act_mul=lambda gate, *rest: right.act_mul(gate.clamp(max=300.0), *rest))
    monkeypatch.setattr(fused_parts, "kernels_for", lambda *_: wrong)
    fusion = fuse(served("llama"))
    assert fusion.left == {("LlamaMLP", "our activation computes something else"): 2}


class OddRMSNorm(nn.Module):
    """Like Llama's, but for what `change` does to the result."""

    def __init__(self, change: str = "") -> None:
        super().__init__()
        self.weight, self.eps, self.change = nn.Parameter(torch.ones(64)), 1e-5, change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        centred = y - y.mean(-1, keepdim=True) if self.change == "centred" else y
        spread = centred.abs() if self.change == "absolute" else centred.square()
        eps = 2 * self.eps if self.change == "epsilon" else self.eps
        unit = centred * torch.rsqrt(spread.mean(-1, keepdim=True) + eps)
        if self.change == "wider":
            return self.weight.float() * unit
        return self.weight * unit.to(x.dtype) + (1e-2 if self.change == "shifted" else 0)


@pytest.mark.parametrize("change", ["", "centred", "absolute", "epsilon", "wider", "shifted"])
def test_a_norm_is_fused_only_where_it_computes_what_ours_does(change: str) -> None:
    norm = OddRMSNorm(change).half().requires_grad_(False)
    if not change:
        with torch.inference_mode():
            fused = fuse_part(norm, SETTING)
            assert fused is not None
            norm.__class__ = fused.cls
            assert torch.equal(norm(torch.zeros(2, 64).half()), torch.zeros(2, 64).half())
        assert fused.use.served
        return
    with torch.inference_mode(), pytest.raises(LeftAlone, match="no root mean square norm"):
        fuse_part(norm, SETTING)


class OddMLP(nn.Module):
    """Gated as Llama's, but for `change`."""

    def __init__(self, change: str = "") -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(48, 80), nn.Linear(48, 80), nn.Linear(80, 48)
        self.act_fn: nn.Module = {"relu": nn.ReLU(), "gelu": nn.GELU()}.get(change, nn.SiLU())
        self.change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        match self.change:
            case "swapped":
                gate, up = up, gate
            case "clamped":
                gate = gate.clamp(max=1.0)
            case "plus one":
                up = up + 1
        return self.down_proj(self.act_fn(gate) * up)


@pytest.mark.parametrize("change", ["", "gelu", "relu", "swapped", "clamped", "plus one"])
def test_a_gate_is_fused_only_where_it_computes_what_ours_does(change: str) -> None:
    torch.manual_seed(0)
    mlp = OddMLP(change).half().requires_grad_(False)
    if change in ("", "gelu"):
        with torch.inference_mode():
            x = torch.randn(5, 48).half()
            expected, fused = mlp(x), fuse_part(mlp, SETTING)
            assert fused is not None
            mlp.__class__ = fused.cls
            torch.testing.assert_close(mlp(x), expected, rtol=2e-3, atol=2e-3)
        return
    with torch.inference_mode(), pytest.raises(LeftAlone):
        fuse_part(mlp, SETTING)


def test_a_forward_that_was_replaced_already_is_left() -> None:
    module = served("llama")
    norm = module.model.norm
    norm.forward = lambda x: x * 0.5
    assert fuse(module).left == {("LlamaRMSNorm", "its forward was replaced already"): 1}
    again = fuse(module)
    assert not again.fused
    assert sum(again.left.values()) == 9


@pytest.mark.parametrize("quantization", ["nf4", "awq"])
def test_the_gates_of_quantized_models_are_fused(quantization: str, tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    save_tiny_model(TINY_MODELS["llama"], folder)
    if quantization == "awq":
        with no_bars():
            folder = save_rounded_awq(folder, tmp_path / "awq", group=32)
    model = load(ModelSpec(str(folder), quantization, "float16", "cpu"))
    assert model.fusion is not None
    assert by_kernel(model.fusion) == FUSED["llama"], model.fusion.text
    after = logits(model.module)
    model.fusion.undo()
    assert difference(after, logits(model.module)) < 1e-2
