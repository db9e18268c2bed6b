"""Attention heads that are too wide for the GPU kernels are refused by name; a CPU has no such bound."""

import pytest
import torch

from engine.config.specs import InvalidInput
from engine.kernels.attention.tilings import WIDEST
from engine.models.card import _refuse_wide_heads


def test_heads_wider_than_the_kernels_serve_are_refused_on_a_gpu_alone() -> None:
    _refuse_wide_heads("wide", torch.device("cpu"), WIDEST + 1)
    _refuse_wide_heads("gemma4_text", torch.device("cuda"), WIDEST)
    with pytest.raises(
        InvalidInput,
        match="'wide': its attention heads are 513 wide, and our GPU kernels serve up to 512: run it on the CPU",
    ):
        _refuse_wide_heads("wide", torch.device("cuda"), WIDEST + 1)
