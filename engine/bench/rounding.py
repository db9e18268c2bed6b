"""Weights of a linear layer in AWQ's layout by rounding alone: as fast and as large as calibrated ones."""

import torch
from torch import Tensor

from engine.kernels.products.codes import Codes
from engine.models.quantization.awq_layout import COLUMNS, LARGEST, SHIFTS
from engine.models.quantization.awq_linear import AwqLinear, codes_of

LEAST_SCALE = 1e-6  # held well by float16; a group of zeros would divide by nothing otherwise


def pack_columns(codes: Tensor) -> Tensor:
    """The int32 [rows, N/8] of codes 0 to 15, [rows, N]: the inverse of `awq_layout.unpack_columns`."""
    shifts = torch.tensor(SHIFTS, dtype=torch.int64, device=codes.device)
    words = (codes.unflatten(1, (-1, COLUMNS)).to(torch.int64) << shifts).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def round_to_nearest(weight: Tensor, group: int = 128) -> tuple[Tensor, Tensor, Tensor]:
    """`qweight`, `qzeros` and `scales` of a weight [N, K], each code the nearest.

    K is a multiple of `group`, or `group` is -1 for all of it; N is a multiple of 8.
    """
    each = weight.shape[1] if group == -1 else group
    groups = weight.detach().t().to(torch.float32).unflatten(0, (-1, each))  # [K/G, G, N]
    low, high = groups.amin(1).clamp(max=0), groups.amax(1).clamp(min=0)
    scales = ((high - low) / LARGEST).clamp(min=LEAST_SCALE).to(torch.float16)
    zeros = (-low / scales).round().clamp(0, LARGEST)
    codes = ((groups / scales[:, None]).round() + zeros[:, None]).clamp(0, LARGEST)
    return pack_columns(codes.flatten(0, 1)), pack_columns(zeros), scales


def rounded_codes(weight: Tensor, group: int = 128) -> Codes:
    """The same of a weight [N, K], as it is multiplied."""
    linear = AwqLinear(weight.shape[1], weight.shape[0], group)
    linear.qweight, linear.qzeros, linear.scales = round_to_nearest(weight, group)
    return codes_of(linear)
