"""Checks of the quick interpreter, which `test_interpreted.py` runs with TRITON_INTERPRET=1: whatever operations have
decided before, kernels compute what they compute where each decides by itself, bit for bit."""

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from triton import jit
from triton import language as tl
from triton.runtime.errors import InterpreterError

from engine.kernels.attention.paged_attention import paged_attention
from engine.kernels.products.awq_matmul import awq_matmul
from engine.kernels.rms_norm import Rounding, rms_norm
from engine.models.quantization.awq_tiles import tiled
from tests.engine.kernels.awq_case import Product, make_weights
from tests.engine.kernels.paged_case import make_case, random_shape
from tests.quick_interpreter import deciding_anew


def check(compute: Callable[[], Tensor]) -> None:
    """Decided at the first time, done again at the second."""
    with deciding_anew():
        expected = compute()
    for _ in range(2):
        torch.testing.assert_close(compute(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("seed", range(4))
def test_attention(seed: int) -> None:
    case = make_case(random_shape(seed, (torch.float32, torch.float16)[seed % 2]), seed)
    check(lambda: case.run(paged_attention))


@pytest.mark.parametrize("rows", [1, 40])
def test_products_with_packed_weights(rows: int) -> None:
    random = torch.Generator().manual_seed(rows)
    tiles, scales = tiled(*make_weights(Product(rows, 256, 48, 64, torch.float16), random))
    x = torch.randn(rows, 256, generator=random).half()
    check(lambda: awq_matmul(x, tiles, scales))


@pytest.mark.parametrize("width", [1, 64])
def test_norms(width: int) -> None:
    x = torch.randn(3, width, generator=torch.Generator().manual_seed(width))
    check(lambda: rms_norm(x, x[0], 1e-6, Rounding.ONCE))


@jit
def products_kernel(out, x, y, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, SIZE)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a * a)
    tl.store(out + SIZE + at, a * b)
    tl.store(out + 2 * SIZE + at, b * tl.load(y))


def test_a_value_that_is_multiplied_by_itself_is_not_taken_for_two() -> None:
    x, y, out = torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0]), torch.empty(6)
    products_kernel[(1,)](out, x, y, 2)
    assert out.tolist() == [4.0, 9.0, 10.0, 21.0, 25.0, 35.0]


@jit
def strided_kernel(out, x, stride, count, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.load(x + at * stride, at < count, other=-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("count", [0, 1, 200, 256])
@pytest.mark.parametrize("size", [2, 256])
def test_a_tile_has_what_lies_at_its_addresses_and_the_other_value_elsewhere(
    size: int, count: int, dtype: torch.dtype
) -> None:
    x, out = (torch.arange(3 * 256) % 251).to(dtype), torch.empty(size, dtype=dtype)
    strided_kernel[(1,)](out, x, 3, count, size)
    expected = torch.full_like(out, 255 if dtype is torch.uint8 else -1)
    expected[:count] = x[: 3 * min(size, count) : 3]
    assert torch.equal(out, expected)


@jit
def sum_kernel(out, x, by):  # type: ignore[no-untyped-def]
    tl.store(out, tl.load(x) + by)


def test_an_overflow_is_told_at_any_time() -> None:
    x, out = torch.tensor([2**31 - 3], dtype=torch.int32), torch.empty(1, dtype=torch.int32)
    for by in (2, 2):
        sum_kernel[(1,)](out, x, by)
        assert out.item() == 2**31 - 1
    x += 1
    with pytest.raises(InterpreterError, match="int32 overflow"):
        sum_kernel[(1,)](out, x, 2)
