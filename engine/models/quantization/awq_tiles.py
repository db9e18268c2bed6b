"""AWQ's codes in the order in which tensor cores take them, for `engine.kernels.products.awq_matmul`.

A tile is 16 outputs by 64 inputs in 128 words of int32, 512 bytes in a row: four words for each thread of a warp. By
the layout of `mma.m16n8k16`, thread 4 * g + t holds outputs g and g + 8, and inputs 4 * t to 4 * t + 3 of each 16. Its
word 2 * r + h has those of output g + 8 * r, two of each 16 inputs: the code from input 16 * p + 4 * t + 2 * h + e lies
at bit 16 * e + 4 * p, so that a shift, a mask and a power of two above them make two numbers of it at once. Where the
last tiles reach past the outputs or the inputs their codes are 0.

Beside them a group has an int32 for each output: its scale, as float16, in the lower 16 bits, and its zero above.
"""

import torch
from torch import Tensor

from engine.kernels.products.awq_matmul import INPUTS, OUTPUTS, WORDS
from engine.models.quantization.awq_layout import LARGEST, unpack_columns

AT_ONCE = 1 << 20  # words of tiles that are made at a time
_SPLIT = (2, 8), (4, 4, 2, 2)  # outputs by r and g, inputs by p, t, h and e


def to_tiles(qweight: Tensor) -> Tensor:
    """Codes in the checkpoint's layout, int32 [inputs, outputs / 8], as tiles: int32 [outputs / 16, inputs / 64, 128],
    both rounded up. Made of some outputs after others, so that a load does not need a layer's codes as integers."""
    inputs, columns = qweight.shape
    across = -(-inputs // INPUTS)
    tiles = qweight.new_empty(-(-columns * 8 // OUTPUTS), across, WORDS)
    at_once = max(1, AT_ONCE // (across * WORDS))
    for first in range(0, len(tiles), at_once):
        some = qweight[:, first * OUTPUTS // 8 : (first + at_once) * OUTPUTS // 8]
        tiles[first : first + at_once] = _strip(unpack_columns(some).t(), across)
    return tiles


def _strip(codes: Tensor, across: int) -> Tensor:
    """The tiles of some outputs' codes [outputs, inputs]."""
    down = -(-len(codes) // OUTPUTS)
    padded = codes.new_zeros(down * OUTPUTS, across * INPUTS)
    padded[: codes.shape[0], : codes.shape[1]] = codes
    r, g, p, t, h, e = 1, 2, 4, 5, 6, 7
    lying = padded.view(down, *_SPLIT[0], across, *_SPLIT[1]).permute(0, 3, g, t, r, h, p, e)
    words = torch.zeros(lying.shape[:6], dtype=torch.int32, device=codes.device)
    for place in range(4):
        for half in range(2):
            words |= lying[..., place, half].to(torch.int32) << (16 * half + 4 * place)
    return words.view(down, across, WORDS)


def with_zeros(scales: Tensor, qzeros: Tensor) -> Tensor:
    """Scales float16 [groups, outputs] and their zeros as the checkpoint has them, in int32 [groups, outputs]."""
    low = scales.contiguous().view(torch.int16).to(torch.int32) & 0xFFFF
    return low | unpack_columns(qzeros).to(torch.int32) << 16


def tiled(qweight: Tensor, qzeros: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """A layer's tiles, and its scales with their zeros."""
    return to_tiles(qweight), with_zeros(scales, qzeros)


def codes_of(tiles: Tensor, inputs: int, outputs: int) -> Tensor:
    """The codes uint8 [outputs, inputs]."""
    down, across, _ = tiles.shape
    places = torch.arange(4, device=tiles.device)[:, None] * 4 + torch.arange(2, device=tiles.device) * 16
    codes = (tiles.view(down, across, 8, 4, 2, 2, 1, 1) >> places & LARGEST).to(torch.uint8)
    g, t, r, h, p, e = range(2, 8)
    return codes.permute(0, r, g, 1, p, t, h, e).reshape(down * OUTPUTS, across * INPUTS)[:outputs, :inputs]


def dequantize_tiles(tiles: Tensor, scales: Tensor, inputs: int, dtype: torch.dtype) -> Tensor:
    """The weight [outputs, inputs]: that of `awq_layout.dequantize`, bit for bit."""
    groups, outputs = scales.shape
    codes = codes_of(tiles, inputs, outputs).unflatten(1, (groups, -1))
    steps = codes.to(torch.int32) - (scales >> 16).t()[:, :, None]
    return (steps.float() * scales.to(torch.int16).view(torch.float16).float().t()[:, :, None]).flatten(1).to(dtype)
