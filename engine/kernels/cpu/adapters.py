"""What adapters (LoRA) add to a product, by the compiled kernel."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.kernels.cpu import structures as held
from engine.kernels.cpu.calls import part_of, run, threads_for
from engine.kernels.silu_mul import in_rows, row_stride

MOST_LANES = 1024  # as `native/adapters.c` has room for
LANES = 16  # a multiple of what any processor's vector holds


@dataclass(frozen=True, slots=True)
class Laid:
    """`down` `[adapters, depth, lanes]` and `up` `[adapters, rank, columns]` of layers whose columns end at `ends`
    int64 `[layers]`, as the kernel reads them."""

    down: Tensor
    up: Tensor
    ends: Tensor


def lay_out(down: Tensor, up: Tensor, widths: list[int]) -> Laid:
    """Of `down` `[adapters, layers * rank, depth]`, the rows of each layer side by side, and `up` `[adapters, columns,
    rank]`, those of each layer below each other, of `widths` columns."""
    lanes = down.shape[1]
    down = pad(down, (0, 0, 0, -lanes % LANES)).transpose(1, 2).contiguous()
    return Laid(down, up.transpose(1, 2).contiguous(), torch.tensor(widths).cumsum(0))


def adapt(out: Tensor, x: Tensor, laid: Laid, ids: Tensor) -> None:
    """Adds to the rows of `out` `[..., columns]`, contiguous, what adapters make of those of `x` `[..., depth]`: of row
    r that of the adapter `ids[r]` - 1, int64, of 0 nothing."""
    x = in_rows(x)
    columns, depth, rank = out.shape[-1], x.shape[-1], laid.up.shape[1]
    rows, lanes, layers = out.numel() // columns, laid.down.shape[2], len(laid.ends)
    places = (one.data_ptr() for one in (out, x, laid.down, laid.up, ids, laid.ends))
    sizes = columns, depth, row_stride(x), rank, lanes, layers
    run(held.Adapt(part_of(rows, x), *places, *sizes), threads_for(rows * (depth + columns)))
