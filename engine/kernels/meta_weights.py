"""Weights without data, for launches that are kept from running."""

import torch
from torch import Tensor

from engine.kernels.four_bits import CODES, Table, table_of


def four_bit_weights(inputs: int, outputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Table]:
    """What `four_bit_matmul` takes of a layer; other numbers for its codes would change constants alone."""
    packed = torch.empty(inputs * outputs // 2, 1, dtype=torch.uint8, device="meta")
    scales = torch.empty(inputs * outputs // 64, device="meta")
    return packed, scales, table_of(tuple(code / CODES for code in range(CODES)), dtype, packed.device)
