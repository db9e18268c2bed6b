"""Checks of the AWQ kernels that `test_interpreted.py` runs with TRITON_INTERPRET=1, in a process of their own.

float32 and float16 only: the interpreter's bfloat16 is wrong (Triton 3.9).
"""

import os

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.kernels.products.awq_matmul import FUSED_ROWS, awq_matmul, awq_unpack
from engine.kernels.products.split_inputs import arrivals
from engine.models.quantization.awq_layout import dequantize
from tests.engine.kernels.awq_case import Product, check, make_weights

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@DTYPES
@pytest.mark.parametrize("rows", [1, 3, 16, 17, 33, 64, FUSED_ROWS, FUSED_ROWS + 1])
def test_every_number_of_rows_agrees_with_the_oracle(rows: int, dtype: torch.dtype) -> None:
    check(Product(rows, 256, 264, 64, dtype), rows)


@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize(
    ("inputs", "outputs", "group"),
    [(16, 8, 16), (96, 8, 32), (96, 40, 96), (144, 72, 48), (128, 520, 128), (640, 136, 128), (512, 48, 256)],
)
def test_every_group_and_odd_sizes_are_served(inputs: int, outputs: int, group: int, rows: int) -> None:
    check(Product(rows, inputs, outputs, group, torch.float16, bias=True), inputs + rows)


@DTYPES
@pytest.mark.parametrize("rows", [1, 40])
def test_rows_of_x_that_lie_apart_are_read_by_their_stride(rows: int, dtype: torch.dtype) -> None:
    check(Product(rows, 128, 64, 32, dtype, bias=True, gap=24), rows)


@pytest.mark.parametrize("rows", [1, 6, 16])
def test_many_parts_are_added_up_by_the_program_that_is_done_last_and_counts_are_left_at_zero(rows: int) -> None:
    product = Product(rows, 704, 264, 64, torch.float16, bias=True)  # eleven parts, more than are read at a time
    check(product, rows, processors=20)
    assert not arrivals(torch.device("cpu"), 1).any()


@pytest.mark.parametrize("rows", [16, 64])
def test_a_row_has_the_same_bits_whatever_the_rows_beside_it_hold(rows: int) -> None:
    random = torch.Generator().manual_seed(rows)
    weights = make_weights(Product(rows, 256, 64, 64, torch.float16), random)
    x = torch.randn(rows, 256, generator=random).half()
    other = torch.cat([x[:1], 1000 * torch.randn(rows - 1, 256, generator=random).half()])
    assert torch.equal(awq_matmul(x, *weights)[0], awq_matmul(other, *weights)[0])


@DTYPES
@pytest.mark.parametrize(("inputs", "outputs", "group"), [(64, 24, 16), (96, 264, 48), (128, 512, 128)])
def test_unpacked_weights_equal_the_layouts_bit_for_bit(
    inputs: int, outputs: int, group: int, dtype: torch.dtype
) -> None:
    weights = make_weights(Product(1, inputs, outputs, group, dtype), torch.Generator().manual_seed(inputs))
    out = torch.full((inputs, outputs), torch.nan, dtype=dtype)
    assert awq_unpack(*weights, dtype, out=out) is out
    assert torch.equal(out, dequantize(*weights, dtype).t())


def test_x_of_more_dimensions_keeps_them_and_none_needs_no_launch() -> None:
    weights = make_weights(Product(6, 64, 16, 32, torch.float16), torch.Generator().manual_seed(0))
    x = torch.randn(2, 3, 64).half()
    out = awq_matmul(x, *weights)
    assert out.shape == (2, 3, 16)
    assert torch.equal(out.flatten(0, 1), awq_matmul(x.flatten(0, 1), *weights))
    assert awq_matmul(x[:0], *weights).shape == (0, 3, 16)
