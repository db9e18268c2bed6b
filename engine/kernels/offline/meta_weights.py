"""Tensors without data, for launches that are kept from running."""

import torch
from torch import Tensor

from engine.kernels.products.awq_matmul import INPUTS, OUTPUTS, WORDS
from engine.kernels.products.four_bits import CODES, table_of


def empty(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def awq_weights(inputs: int, outputs: int, group: int) -> tuple[Tensor, Tensor]:
    """What `awq_matmul` takes of a layer."""
    return empty(-(-outputs // OUTPUTS), -(-inputs // INPUTS), WORDS), empty(inputs // group, outputs)


def four_bit_weights(inputs: int, outputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """What `four_bit_matmul` takes of a layer; other numbers for its codes would change constants alone."""
    packed, scales = (
        empty(inputs * outputs // 2, 1, dtype=torch.uint8),
        empty(inputs * outputs // 64, dtype=torch.float32),
    )
    return packed, scales, table_of(tuple(code / CODES for code in range(CODES)), dtype, packed.device)
