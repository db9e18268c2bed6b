"""Tensors without data, for launches that are kept from running."""

import torch
from torch import Tensor

from engine.kernels.products.awq_matmul import INPUTS, OUTPUTS, WORDS
from engine.kernels.products.codes import SHARED, Codes
from engine.kernels.products.coding import Coding
from engine.kernels.products.expert_codes import HALF_BLOCK, ExpertCodes
from engine.kernels.products.four_bits import BLOCK_K, CODES, table_of


def empty(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def awq_weights(inputs: int, outputs: int, group: int) -> tuple[Tensor, Tensor]:
    """What `awq_matmul` takes of a layer."""
    return empty(-(-outputs // OUTPUTS), -(-inputs // INPUTS), WORDS), empty(inputs // group, outputs)


def expert_codes(coding: Coding, experts: int, outputs: int, inputs: int, dtype: torch.dtype) -> ExpertCodes:
    """What `experts` takes of a layer's gates, or of what follows them."""
    rows, groups = experts * outputs, inputs // (HALF_BLOCK if coding is Coding.POWERS else BLOCK_K)
    if coding is Coding.BYTES:
        codes = Codes(coding, empty(rows, inputs, dtype=torch.int8), empty(rows, 1, dtype=torch.float32))
        return ExpertCodes(codes, experts, None)
    packed, entries = empty(rows, inputs // 2, dtype=torch.uint8), empty(16, dtype=torch.float32)
    if coding is Coding.STEPS:
        return ExpertCodes(Codes(coding, packed, empty(rows, inputs // 128)), experts, None)
    table = table_of(tuple(code / CODES for code in range(CODES)), dtype, packed.device)
    if coding is Coding.ENTRIES:
        return ExpertCodes(Codes(coding, packed, empty(rows, groups, dtype=torch.float32), entries), experts, table)
    if coding is Coding.POWERS:
        return ExpertCodes(Codes(coding, packed, empty(rows, groups, dtype=torch.uint8), entries), experts, table)
    fine, coarse = empty(256, dtype=torch.float32), empty(-(-rows * groups // SHARED), 2, dtype=torch.float32)
    codes = Codes(coding, packed, empty(rows, groups, dtype=torch.uint8), entries, fine, coarse, empty(rows))
    return ExpertCodes(codes, experts, table)


def four_bit_weights(inputs: int, outputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """What `four_bit_matmul` takes of a layer; other numbers for its codes would change constants alone."""
    packed, scales = (
        empty(inputs * outputs // 2, 1, dtype=torch.uint8),
        empty(inputs * outputs // 64, dtype=torch.float32),
    )
    return packed, scales, table_of(tuple(code / CODES for code in range(CODES)), dtype, packed.device)
