"""MXFP4: 4-bit floats (e2m1) with a power of two every 32, as gpt-oss has its experts. The format, and how numbers are
rounded to it, are of the Open Compute Project's "Microscaling Formats (MX) Specification" 1.0, 5.3 and 6.3."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from engine.config.schemes import MX_BLOCK
from engine.kernels.products.codes import Codes, powers_of_two
from engine.kernels.products.coding import Coding

FLOATS = 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0  # of the codes 0 to 7; those of 8 to 15 are less than 0
BIAS = 127  # of a scale's exponent
LARGEST = 2  # that of the largest code's
NO_NUMBER = 255  # a scale


@cache
def _table(device: torch.device) -> Tensor:
    """What codes mean."""
    return torch.tensor([*FLOATS, *(-x for x in FLOATS)], device=device)


def of_blocks(blocks: Tensor, scales: Tensor) -> Codes:
    """From uint8 `[experts, outputs, groups, 16]`, two codes in a byte, the lower bits first, and uint8 `[experts,
    outputs, groups]`: one weight of all experts' outputs."""
    experts, outputs, groups = scales.shape
    codes, scales = blocks.reshape(experts * outputs, -1), scales.reshape(experts * outputs, groups)
    return Codes(Coding.POWERS, codes, scales, _table(scales.device))


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks uint8 `[outputs, groups, 16]` and scales uint8 `[outputs, groups]` of a weight `[outputs, inputs]`, a
    multiple of 32, of numbers: the nearest, of two as near the even one, of too large ones the largest. The scale is
    the power of two of the largest number of a group, over that of the largest code."""
    values = weight.float().contiguous().unflatten(-1, (-1, MX_BLOCK))
    _, exponent = values.abs().amax(-1).frexp()  # of a number from a half to 1
    scales = (exponent - 1 - LARGEST + BIAS).clamp(0, NO_NUMBER - 1).to(torch.uint8)
    table = _table(weight.device)
    between = (table[:7] + table[1:8]) / 2
    odd = torch.arange(7, device=weight.device) % 2 == 1
    between = torch.where(odd, between.nextafter(between.new_zeros(())), between)
    of_scale = values / powers_of_two(scales)[..., None]
    codes = torch.bucketize(of_scale.abs(), between).to(torch.uint8) | of_scale.signbit().to(torch.uint8) << 3
    return codes[..., ::2] | codes[..., 1::2] << 4, scales


def mxfp4_codes(weight: Tensor) -> Codes:
    """A weight `[outputs, inputs]` as `rounded` makes it."""
    blocks, scales = rounded(weight)
    return of_blocks(blocks[None], scales[None])
