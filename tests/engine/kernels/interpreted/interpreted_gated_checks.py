"""Checks of products that end with their gate, which `test_interpreted.py` runs with TRITON_INTERPRET=1.

float16 only: the interpreter's bfloat16 is wrong (Triton 3.9).
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.bench.rounding import round_to_nearest
from engine.kernels.jit import launched
from engine.kernels.products.awq_matmul import FUSED_ROWS, awq_matmul, can_gate
from engine.kernels.products.four_bits import FEW_ROWS, four_bit_matmul
from engine.kernels.products.gemv import gemv
from engine.kernels.silu_mul import Activation, act_mul
from engine.models.fusion.awq_products import Awq
from engine.models.fusion.fuse import fuse
from engine.models.fusion.gated_products import KERNEL
from engine.models.fusion.products import Dense
from engine.models.quantization.awq_tiles import tiled
from tests.engine.fusing_case import all_kernels, difference, logits, served
from tests.engine.kernels.four_bits_case import Product, make_weights
from tests.engine.kernels.interpreted.interpreted_joined_awq_checks import awq_model

HALF = torch.float16
INPUTS = 128
LAYERS = 1


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(HALF)


def dense(outputs: int, bias: Tensor | None) -> Callable[..., Tensor]:
    weight = drawn(1, outputs, INPUTS) / 8
    return lambda x, **gate: gemv(x, weight, bias, 4, **gate)


def awq(outputs: int, bias: Tensor | None) -> Callable[..., Tensor]:
    weights = tiled(*round_to_nearest(drawn(1, outputs, INPUTS).float() / 8, 64))
    return lambda x, **gate: awq_matmul(x, *weights, bias, **gate)


def nf4(outputs: int, bias: Tensor | None) -> Callable[..., Tensor]:
    given = make_weights(Product(1, INPUTS, outputs, HALF), torch.Generator().manual_seed(1), "cpu")[:3]
    return lambda x, **gate: four_bit_matmul(x, *given, bias, **gate)


@pytest.mark.parametrize(
    ("make", "rows", "outputs"),
    [
        *((dense, 1, outputs) for outputs in (24, 2 * 37, 128, 256)),
        *((awq, rows, 2 * 144) for rows in (1, 9, 17, 33, FUSED_ROWS)),
        (awq, 5, 32),
        *((nf4, rows, 2 * 40) for rows in (1, 16, FEW_ROWS)),
    ],
)
def test_a_gated_product_is_the_gate_of_the_products_halves_bit_for_bit(
    make: Callable[..., Any], rows: int, outputs: int
) -> None:
    """Each activation of some number of rows, half of them with a bias: of how many there are, gates know nothing."""
    x, biases = drawn(rows, rows, INPUTS), (None, drawn(2, outputs))
    products = [make(outputs, bias) for bias in biases]
    wholes = [product(x) for product in products]
    for place, activation in enumerate(Activation, rows + outputs // 2):
        gated = products[place % 2](x, gate=activation)
        assert gated.shape == (rows, outputs // 2)
        assert torch.equal(gated, act_mul(*wholes[place % 2].chunk(2, -1), activation))


def test_a_product_of_awq_ends_with_its_gate_where_its_halves_are_whole_tiles() -> None:
    assert can_gate(FUSED_ROWS, 64)
    assert not can_gate(FUSED_ROWS + 1, 64)
    assert not can_gate(1, 48)


@pytest.mark.parametrize(("kind", "most"), [("llama", 1), ("phi3", 1), ("awq", FUSED_ROWS)])
def test_a_gated_mlp_of_few_rows_is_a_launch_less_and_can_be_undone(kind: str, most: int) -> None:
    module = awq_model("llama") if kind == "awq" else served(kind, HALF, layers=LAYERS)
    before = logits(module)
    fusion = fuse(module)
    assert all_kernels(fusion)[KERNEL] == all_kernels(fusion)["gate"] == LAYERS, fusion.text
    assert f"{KERNEL} of {LAYERS} {type(module.model.layers[0].mlp).__name__}" in fusion.text
    assert difference(logits(module), before) < 1e-2
    mlp, drawn_rows, found = module.model.layers[0].mlp, [drawn(rows, rows, 64) for rows in (1, most + 1)], []
    with torch.inference_mode():
        for x in drawn_rows:
            names = [launch.kernel.fn.__name__ for launch in launched(mlp, x)]
            assert names.count("act_mul_kernel") == (0 if len(x) <= most else 1)
            found.append(mlp(x))
        fusion.undo()
        for x, out in zip(drawn_rows, found):
            expected = mlp(x).float()
            assert (out.float() - expected).abs().max() <= 1e-2 * expected.abs().max()
    assert torch.equal(logits(module), before)


def test_a_gated_product_that_computes_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Dense.gated

    def wrong(self: Dense, x: Tensor, activation: Activation) -> Tensor | None:
        product = own(self, x, activation)
        return None if product is None else product + product.abs().max()

    monkeypatch.setattr(Dense, "gated", wrong)
    fusion = fuse(served("llama", HALF, layers=LAYERS))
    assert not all_kernels(fusion)[KERNEL]
    assert all_kernels(fusion)["gate"] == LAYERS


def test_a_gated_product_that_is_wrong_of_many_rows_alone_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Awq.gated

    def wrong(self: Awq, x: Tensor, activation: Activation) -> Tensor | None:
        product = own(self, x, activation)
        return product if product is None or x.numel() < 20 * x.shape[-1] else product * 1.01

    monkeypatch.setattr(Awq, "gated", wrong)
    fusion = fuse(awq_model("llama"))
    assert not all_kernels(fusion)[KERNEL]
    assert all_kernels(fusion)["gate"] == LAYERS
