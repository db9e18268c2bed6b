"""Products with codes are those of the numbers that the codes stand for, for any sizes, and row by row."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.kernels.cpu.calls import to_integers
from engine.kernels.cpu.codes import multiplies, pack_codes
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.cpu.library import native
from engine.kernels.products.codes import Codes, joined
from engine.kernels.products.coding import Coding

pytestmark = pytest.mark.skipif(native().library is None, reason=native().why)
DTYPES = (torch.float32, torch.bfloat16)
SIZES = [(1, 8, 8), (48, 64, 32), (64, 128, 64), (130, 320, 64), (200, 264, 8), (96, 640, 128)]  # and the group


def made(coding: Coding, outputs: int, inputs: int, group: int, seed: int = 0) -> Codes:
    """Codes of every value, with scales about 1 of either sign."""
    random = torch.Generator().manual_seed(seed)

    def integers(low: int, high: int, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randint(low, high, shape, dtype=dtype, generator=random)

    def scales(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    if coding is Coding.BYTES:
        return Codes(coding, integers(-128, 128, outputs, inputs, dtype=torch.int8), scales(outputs, 1))
    codes, groups = integers(0, 256, outputs, inputs // 2, dtype=torch.uint8), inputs // group
    if coding is Coding.STEPS:
        bits = scales(outputs, groups).half().view(torch.int16).int() & 0xFFFF
        return Codes(coding, codes, bits | integers(0, 16, outputs, groups, dtype=torch.int32) << 16)
    table = torch.linspace(-1, 1, 16)
    if coding is Coding.ENTRIES:
        return Codes(coding, codes, scales(outputs, groups), table)
    if coding is Coding.POWERS:
        exponents = integers(124, 131, outputs, groups, dtype=torch.uint8)
        exponents[0, 0] = 0
        return Codes(coding, codes, exponents, table)
    fine, coarse = torch.linspace(0, 1, 256), scales(-(-outputs * groups // 256), 2).abs()
    first = torch.arange(0, outputs * groups, groups, dtype=torch.int32)
    return Codes(coding, codes, integers(0, 256, outputs, groups, dtype=torch.uint8), table, fine, coarse, first)


def product(codes: Codes, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return pack_codes(codes, LargePages()).product(x, bias)


def rows(count: int, inputs: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(count)).to(dtype)


@pytest.mark.parametrize("coding", Coding)
@pytest.mark.parametrize(("outputs", "inputs", "group"), SIZES)
def test_what_is_packed_is_unpacked(coding: Coding, outputs: int, inputs: int, group: int) -> None:
    codes = made(coding, outputs, inputs, group)
    back = pack_codes(codes, LargePages()).unpack()
    assert torch.equal(back.codes, codes.codes)
    assert torch.equal(back.scales, codes.scales)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("coding", Coding)
@pytest.mark.parametrize(("outputs", "inputs", "group"), SIZES)
@pytest.mark.parametrize("count", [1, 2, 7, 13, 97])
def test_a_product_is_that_of_the_numbers(
    coding: Coding, outputs: int, inputs: int, group: int, count: int, dtype: torch.dtype
) -> None:
    """bfloat16 rounds what is given back, and, where the processor multiplies it, a table's entries."""
    codes, x = made(coding, outputs, inputs, group), rows(count, inputs, dtype)
    bias = rows(1, outputs, dtype)[0]
    out = product(codes, x, bias)
    weight = codes.numbers().double()
    exact = x.double() @ weight.T + bias
    assert out.dtype is dtype
    error = (out.double() - exact).abs() / (x.double().abs() @ weight.abs().T + bias.abs())
    assert error.max() < (2**-8 if dtype is torch.bfloat16 else 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("coding", Coding)
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it(coding: Coding, dtype: torch.dtype) -> None:
    codes, x = pack_codes(made(coding, 192, 320, 64), LargePages()), rows(200, 320, dtype)
    whole = codes.product(x, None)
    for count in (1, 5, 6, 12, 13, 97):
        assert torch.equal(codes.product(x[:count], None), whole[:count]), count


@pytest.mark.parametrize("coding", Coding)
@pytest.mark.parametrize("threads", [2, 3])
def test_any_number_of_threads_gives_the_same(coding: Coding, threads: int) -> None:
    codes, x = pack_codes(made(coding, 192, 320, 64), LargePages()), rows(40, 320, torch.float32)
    alone, before = codes.product(x, None), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(codes.product(x, None), alone)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [5, 64, 300])
@pytest.mark.parametrize("outliers", [0.0, 3.0])
def test_rows_become_integers_of_8_bits_but_for_what_stands_out(
    width: int, outliers: float, dtype: torch.dtype
) -> None:
    x = rows(9, width, dtype)
    x[1, 2], x[2], x[3] = 40, 0, 1e-38
    whole, scales = to_integers(x, outliers)
    kept = x.abs() >= outliers if outliers else torch.zeros_like(x, dtype=torch.bool)
    inside = torch.where(kept, 0, x).float()
    most = inside.abs().amax(1)
    torch.testing.assert_close(scales, torch.where(most > 1e-20, most / 127, 1))
    near = torch.where(kept, x.float(), inside / scales[:, None])
    assert (whole.float() - near)[~kept].abs().max() <= 0.5 + 1e-4
    assert torch.equal(whole[~kept], whole[~kept].round())
    torch.testing.assert_close((whole * scales[:, None])[kept], x.float()[kept], rtol=2**-8, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("outliers", [0.0, 3.0])
def test_a_product_of_8_bits_is_that_of_both_rounded(outliers: float, dtype: torch.dtype) -> None:
    codes, x = replace(made(Coding.BYTES, 130, 320, 320), outliers=outliers), rows(9, 320, dtype)
    whole, scales = to_integers(x, outliers)
    bias = rows(1, 130, dtype)[0]
    exact = whole.double() * scales[:, None] @ codes.numbers().double().T + bias
    out = product(codes, x, bias)
    assert ((out - exact).norm() / exact.norm()) < (2**-8 if dtype is torch.bfloat16 else 1e-6)


@pytest.mark.parametrize("coding", Coding)
def test_weights_of_one_input_are_joined(coding: Coding) -> None:
    parts = [made(coding, outputs, 256, 64, seed=7) for outputs in (128, 96, 192)]
    whole = joined(parts)
    assert whole is not None
    assert torch.equal(whole.numbers(), torch.cat([part.numbers() for part in parts]))


@pytest.mark.parametrize(
    "other",
    [made(Coding.BYTES, 64, 256, 64), made(Coding.ENTRIES_TWICE, 64, 256, 32), made(Coding.ENTRIES_TWICE, 64, 512, 64)],
)
def test_weights_of_other_kinds_or_groups_are_not(other: Codes) -> None:
    assert joined([made(Coding.ENTRIES_TWICE, 64, 256, 64), other]) is None


@pytest.mark.parametrize(
    ("of", "fits"),
    [
        ((Coding.STEPS, 256, 128, torch.bfloat16), True),
        ((Coding.STEPS, 256, 4, torch.bfloat16), False),
        ((Coding.BYTES, 12, 12, torch.float32), True),
        ((Coding.BYTES, 10, 10, torch.float32), False),
        ((Coding.ENTRIES, 256, 64, torch.float16), False),
    ],
)
def test_what_is_multiplied_is_told_beforehand(of: Any, fits: bool) -> None:
    assert multiplies(*of) is fits
