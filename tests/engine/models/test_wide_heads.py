"""Attention heads wider than our GPU kernels serve are refused on a GPU, and named."""

import pytest
import torch

from engine import InvalidInput
from engine.kernels.attention.tilings import WIDEST
from engine.models.card import _refuse_wide_heads

BF16, FP32 = torch.bfloat16, torch.float32


def test_heads_too_wide_for_the_gpu_are_named() -> None:
    _refuse_wide_heads("wide", torch.device("cpu"), FP32, WIDEST + 1)
    _refuse_wide_heads("deepseek_v3", torch.device("cuda"), BF16, 576)
    for dtype, wide, words in (
        (BF16, WIDEST + 1, "1025 wide, and our GPU kernels serve up to 1024 in bfloat16: run it on the CPU"),
        (FP32, 576, "576 wide, and our GPU kernels serve up to 512 in float32: choose bfloat16, or run it on the CPU"),
    ):
        with pytest.raises(InvalidInput, match=f"'wide': its attention heads are {words}"):
            _refuse_wide_heads("wide", torch.device("cuda"), dtype, wide)
