"""Packed weights are read exactly, and packed as they are read."""

import pytest
import torch
from torch import Tensor

from engine.bench.rounding import pack_columns, round_to_nearest
from engine.models.quantization.awq_layout import dequantize, unpack
from tests.engine.models.quantization.scalar_awq import decode


def random_layer(inputs: int, outputs: int, group: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Every bit of the words random, signs included; scales of many sizes, subnormal ones among them."""
    random = torch.Generator().manual_seed(seed)

    def words(rows: int) -> Tensor:
        return torch.randint(-(2**31), 2**31, (rows, outputs // 8), generator=random).to(torch.int32)

    scales = torch.randn(inputs // group, outputs, generator=random) * 10.0 ** torch.randint(
        -7, 3, (inputs // group, outputs), generator=random
    )
    return words(inputs), words(inputs // group), scales.half()


@pytest.mark.parametrize(("inputs", "outputs", "group"), [(64, 24, 32), (96, 8, 96), (48, 40, 16), (128, 16, 128)])
def test_unpacked_weights_equal_a_scalar_decoder_exactly(inputs: int, outputs: int, group: int) -> None:
    layer = random_layer(inputs, outputs, group, inputs)
    weight = dequantize(*layer, torch.float32)
    assert weight.is_contiguous()
    assert torch.equal(weight, decode(*layer))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_other_dtypes_round_the_exact_weight_once(dtype: torch.dtype) -> None:
    layer = random_layer(64, 24, 32)
    assert torch.equal(dequantize(*layer, dtype), decode(*layer).to(dtype))


def test_packing_gives_back_the_words_it_unpacked() -> None:
    qweight, qzeros, _ = random_layer(64, 24, 32)
    packed = [pack_columns(codes) for codes in unpack(qweight, qzeros)]
    assert torch.equal(packed[0], qweight)
    assert torch.equal(packed[1], qzeros)
    assert packed[0].dtype == packed[1].dtype == torch.int32


@pytest.mark.parametrize("group", [32, 64, -1])
@pytest.mark.parametrize("mean", [0.0, 3.0, -3.0])
def test_rounding_is_off_by_half_a_step_at_most(group: int, mean: float) -> None:
    weight = torch.randn(24, 128, generator=torch.Generator().manual_seed(1)) + mean
    qweight, qzeros, scales = round_to_nearest(weight, group)
    each = 128 if group == -1 else group
    assert (len(qweight) // len(qzeros), scales.dtype) == (each, torch.float16)
    steps = scales.float().t().repeat_interleave(each, 1)
    # Half a step for the weight; half for the zero, which moves both ends of the range by as much.
    assert ((dequantize(qweight, qzeros, scales, torch.float32) - weight).abs() <= 1.01 * steps).all()
    assert ((dequantize(qweight, qzeros, scales, torch.float32) - weight).abs() <= 0.501 * steps).float().mean() > 0.95


def test_weights_of_nothing_but_zeros_stay_zero() -> None:
    assert not dequantize(*round_to_nearest(torch.zeros(8, 64), 32), torch.float32).any()
