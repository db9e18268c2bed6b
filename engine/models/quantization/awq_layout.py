"""AWQ's "gemm" layout: eight 4-bit codes in each int32, side by side along the outputs, in an order of its own.

For a linear layer of K inputs and N outputs in groups of G inputs: `qweight` int32 [K, N/8], `qzeros` int32 [K/G, N/8],
`scales` float16 [K/G, N]. The weight from input k to output n is (code - zero) * scale, where column n lies at bit
16 * (n & 1) + 4 * ((n & 7) >> 1) of its int32 (Lin et al. 2024, "AWQ"; the layout is that of its authors' kernels).
"""

from __future__ import annotations

import torch
from torch import Tensor

COLUMNS = 8  # that share an int32
SHIFTS = tuple(16 * (n & 1) + 4 * ((n & 7) >> 1) for n in range(COLUMNS))
LARGEST = 15  # code of 4 bits
LEAST_SCALE = 1e-6  # held well by float16; a group of zeros would divide by nothing otherwise


def group_of(qweight: Tensor, qzeros: Tensor) -> int:
    """The number of inputs that share a scale."""
    return qweight.shape[0] // qzeros.shape[0]


def unpack_columns(packed: Tensor) -> Tensor:
    """The codes of int32 [rows, N/8], as uint8 [rows, N]."""
    shifts = torch.tensor(SHIFTS, dtype=torch.int32, device=packed.device)
    return ((packed[:, :, None] >> shifts) & LARGEST).to(torch.uint8).flatten(1)


def pack_columns(codes: Tensor) -> Tensor:
    """The int32 [rows, N/8] of codes 0 to 15, [rows, N]."""
    shifts = torch.tensor(SHIFTS, dtype=torch.int64, device=codes.device)
    words = (codes.unflatten(1, (-1, COLUMNS)).to(torch.int64) << shifts).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def unpack(qweight: Tensor, qzeros: Tensor) -> tuple[Tensor, Tensor]:
    """Codes uint8 [K, N] and zeros uint8 [K/G, N]."""
    return unpack_columns(qweight), unpack_columns(qzeros)


def pack(codes: Tensor, zeros: Tensor) -> tuple[Tensor, Tensor]:
    """`qweight` and `qzeros`, the inverse of `unpack`."""
    return pack_columns(codes), pack_columns(zeros)


def dequantize(qweight: Tensor, qzeros: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight [N, K], contiguous. Exact in float32 (5 bits times 11 fit its 24); in other dtypes rounded once."""
    codes, zeros = unpack(qweight, qzeros)
    steps = codes.unflatten(0, (len(zeros), -1)).to(torch.int8) - zeros[:, None].to(torch.int8)
    return (steps.to(torch.float32) * scales[:, None].to(torch.float32)).flatten(0, 1).to(dtype).t().contiguous()


def round_to_nearest(weight: Tensor, group: int = 128) -> tuple[Tensor, Tensor, Tensor]:
    """`qweight`, `qzeros` and `scales` of a weight [N, K], each code the nearest; no calibration, unlike AWQ proper.

    K is a multiple of `group`, or `group` is -1 for all of it; N is a multiple of 8.
    """
    each = weight.shape[1] if group == -1 else group
    groups = weight.detach().t().to(torch.float32).unflatten(0, (-1, each))  # [K/G, G, N]
    low, high = groups.amin(1).clamp(max=0), groups.amax(1).clamp(min=0)
    scales = ((high - low) / LARGEST).clamp(min=LEAST_SCALE).to(torch.float16)
    zeros = (-low / scales).round().clamp(0, LARGEST)
    codes = ((groups / scales[:, None]).round() + zeros[:, None]).clamp(0, LARGEST)
    return *pack(codes.flatten(0, 1).to(torch.uint8), zeros.to(torch.uint8)), scales
