"""Tiles hold what the checkpoint's layout does, where the kernel looks for it."""

import pytest
import torch
from torch import Tensor

from engine.kernels.products.awq_matmul import INPUTS, OUTPUTS
from engine.models.quantization import awq_tiles
from engine.models.quantization.awq_layout import dequantize, unpack_columns
from engine.models.quantization.awq_tiles import codes_of, dequantize_tiles, tiled, to_tiles


def made(inputs: int, outputs: int, group: int) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(inputs)
    bits = {"low": -(2**31), "high": 2**31, "generator": random}
    qweight = torch.randint(**bits, size=(inputs, outputs // 8)).to(torch.int32)
    qzeros = torch.randint(**bits, size=(inputs // group, outputs // 8)).to(torch.int32)
    return qweight, qzeros, torch.randn(inputs // group, outputs, generator=random).half()


@pytest.mark.parametrize(("inputs", "outputs", "group"), [(64, 16, 64), (96, 40, 32), (144, 72, 48), (256, 264, 128)])
def test_weights_are_the_layouts_bit_for_bit(inputs: int, outputs: int, group: int) -> None:
    weights = made(inputs, outputs, group)
    tiles, scales = tiled(*weights)
    assert torch.equal(codes_of(tiles, inputs, outputs), unpack_columns(weights[0]).t())
    for dtype in (torch.float32, torch.bfloat16):
        assert torch.equal(dequantize_tiles(tiles, scales, inputs, dtype), dequantize(*weights, dtype))


def test_a_code_lies_where_a_tensor_core_wants_it() -> None:
    qweight, _, _ = made(192, 48, 64)
    codes, tiles = unpack_columns(qweight).t(), to_tiles(qweight)
    for output, k in ((0, 0), (9, 77), (31, 130), (47, 191)):
        g, r = output % 8, output % OUTPUTS // 8
        p, t, h, e = k % INPUTS // 16, k % 16 // 4, k % 4 // 2, k % 2
        word = int(tiles[output // OUTPUTS, k // INPUTS, 16 * g + 4 * t + 2 * r + h])
        assert word >> (16 * e + 4 * p) & 15 == codes[output, k]


def test_tiles_reach_past_the_last_output_and_input_with_zeros() -> None:
    qweight, _, _ = made(80, 24, 16)
    tiles = to_tiles(qweight)
    assert tiles.shape == (2, 2, 128)
    whole = codes_of(tiles, 2 * INPUTS, 2 * OUTPUTS)
    assert whole[:24, :80].any()
    assert not whole[24:].any()
    assert not whole[:, 80:].any()


@pytest.mark.parametrize("words", [1, 600, 1 << 20])
def test_it_does_not_matter_how_many_are_made_at_a_time(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    qweight, _, _ = made(144, 72, 48)
    monkeypatch.setattr(awq_tiles, "AT_ONCE", words)
    assert torch.equal(codes_of(to_tiles(qweight), 144, 72), unpack_columns(qweight).t())
