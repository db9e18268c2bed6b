"""Checks of the AWQ kernels that `test_interpreted.py` runs with TRITON_INTERPRET=1, in a process of their own.

float16 only: the interpreter's bfloat16 is wrong (Triton 3.9).
"""

import os

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.kernels.products.awq_matmul import FUSED_ROWS, Tiling, awq_matmul, awq_unpack
from engine.models.quantization.awq_layout import dequantize
from engine.models.quantization.awq_tiles import tiled
from tests.engine.kernels.awq_case import Product, check, make_weights

HALF = torch.float16


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("rows", [1, 3, 8, 9, 16, 17, 33, 64, FUSED_ROWS, FUSED_ROWS + 1])
def test_every_number_of_rows_agrees_with_the_oracle(rows: int) -> None:
    check(Product(rows, 256, 264, 64, HALF), rows)


@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize(
    ("inputs", "outputs", "group"),
    [(16, 8, 16), (96, 8, 32), (96, 40, 96), (144, 72, 48), (128, 520, 128), (640, 136, 128), (512, 48, 256)],
)
def test_every_group_and_odd_sizes_are_served(inputs: int, outputs: int, group: int, rows: int) -> None:
    check(Product(rows, inputs, outputs, group, HALF, bias=True), inputs + rows)


@pytest.mark.parametrize("rows", [1, 40])
def test_rows_of_x_that_lie_apart_are_read_by_their_stride(rows: int) -> None:
    check(Product(rows, 128, 64, 32, HALF, bias=True, gap=24), rows)


@pytest.mark.parametrize("cut", [Tiling(8, 32, 4, 4, 2, 3), Tiling(16, 16, 2, 2, 1, 2), Tiling(8, 64, 1, 4, 2, 3)])
@pytest.mark.parametrize("inputs", [128, 384, 1408])
def test_inputs_are_shared_out_whatever_their_number(inputs: int, cut: Tiling) -> None:
    check(Product(5, inputs, 72, 128, HALF, bias=True), inputs, cut=cut)


@pytest.mark.parametrize("rows", [8, 16, 64])
def test_a_row_has_the_same_bits_whatever_the_rows_beside_it_hold(rows: int) -> None:
    random = torch.Generator().manual_seed(rows)
    packed = tiled(*make_weights(Product(rows, 256, 64, 64, HALF), random))
    x = torch.randn(rows, 256, generator=random).half()
    other = torch.cat([x[:1], 1000 * torch.randn(rows - 1, 256, generator=random).half()])
    assert torch.equal(awq_matmul(x, *packed)[0], awq_matmul(other, *packed)[0])


@pytest.mark.parametrize(("inputs", "outputs", "group"), [(64, 24, 16), (96, 264, 48), (128, 512, 128)])
def test_unpacked_weights_equal_the_layouts_bit_for_bit(inputs: int, outputs: int, group: int) -> None:
    weights = make_weights(Product(1, inputs, outputs, group, HALF), torch.Generator().manual_seed(inputs))
    out = torch.full((outputs, inputs), torch.nan, dtype=HALF)
    assert awq_unpack(*tiled(*weights), inputs, HALF, out=out) is out
    assert torch.equal(out, dequantize(*weights, HALF))


def test_x_of_more_dimensions_keeps_them_and_none_needs_no_launch() -> None:
    packed = tiled(*make_weights(Product(6, 64, 16, 32, HALF), torch.Generator().manual_seed(0)))
    x = torch.randn(2, 3, 64).half()
    out = awq_matmul(x, *packed)
    assert out.shape == (2, 3, 16)
    assert torch.equal(out.flatten(0, 1), awq_matmul(x.flatten(0, 1), *packed))
    assert awq_matmul(x[:0], *packed).shape == (0, 3, 16)
