"""AWQ's "gemm" layout: eight 4-bit codes in each int32, side by side along the outputs, in an order of its own.

For a linear layer of K inputs and N outputs in groups of G inputs: `qweight` int32 [K, N/8], `qzeros` int32 [K/G, N/8],
`scales` float16 [K/G, N]. The weight from input k to output n is (code - zero) * scale, where column n lies at bit
16 * (n & 1) + 4 * ((n & 7) >> 1) of its int32 (Lin et al. 2024, "AWQ"; the layout is that of its authors' kernels).
"""

import torch
from torch import Tensor

from engine.checkpoints.awq_settings import COLUMNS

SHIFTS = tuple(16 * (n & 1) + 4 * ((n & 7) >> 1) for n in range(COLUMNS))
LARGEST = 15  # code of 4 bits


def unpack_columns(packed: Tensor) -> Tensor:
    """The codes of int32 [rows, N/8], as uint8 [rows, N]."""
    shifts = torch.tensor(SHIFTS, dtype=torch.int32, device=packed.device)
    return ((packed[:, :, None] >> shifts) & LARGEST).to(torch.uint8).flatten(1)


def unpack(qweight: Tensor, qzeros: Tensor) -> tuple[Tensor, Tensor]:
    """Codes uint8 [K, N] and zeros uint8 [K/G, N]."""
    return unpack_columns(qweight), unpack_columns(qzeros)


def dequantize(qweight: Tensor, qzeros: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight [N, K], contiguous. Exact in float32 (5 bits times 11 fit its 24); in other dtypes rounded once."""
    codes, zeros = unpack(qweight, qzeros)
    steps = codes.unflatten(0, (len(zeros), -1)).to(torch.int8) - zeros[:, None].to(torch.int8)
    return (steps.to(torch.float32) * scales[:, None].to(torch.float32)).flatten(0, 1).to(dtype).t().contiguous()
