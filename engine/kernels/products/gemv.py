"""Triton kernel for a matrix times a vector, a dense linear layer of one row: bound by the bytes of the weight.

No tensor cores: a program multiplies tiles of some rows of the weight as they come in, and adds up at its end. Measured
on an H200, against cuBLAS, which splits narrow layers and adds the parts up in a launch of their own: 0.80 to 0.99 of
its time at the widths of an 8B model, 0.26 to 0.87 at those of a 0.6B model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.attention.tilings import device_facts
from engine.kernels.dependent_launch import await_inputs, fetch_ahead
from engine.kernels.jit import constant, jit, launch, tl
from engine.kernels.products.gating import gated_width, outputs_of, store_product
from engine.kernels.silu_mul import Activation

DTYPES = torch.float16, torch.bfloat16
TILE = 4096  # elements of the weight that a program has in its hands at a time
PROGRAMS = 256  # at least, where the outputs suffice: about two a multiprocessor
WARPS, STAGES = 4, 4
LINE = constant(64)  # elements of a cache line
AHEAD, WAVE = 2, 4  # tiles that are fetched before the input is there, where so many programs a multiprocessor are all


@jit(do_not_specialize=["outputs"])
def gemv_kernel(
    out: tl.tensor,  # [outputs]
    x: tl.tensor,  # [inputs]
    weight: tl.tensor,  # [outputs, inputs]
    bias: tl.tensor,  # or None
    inputs: tl.tensor,
    outputs: tl.tensor,
    stride: tl.tensor,  # of the weight's rows
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,  # whether BLOCK_K divides the inputs
    STAGES: tl.constexpr,
    AHEAD: tl.constexpr,
    GATE: tl.constexpr,  # the activation of the first half of the outputs, or None
) -> None:
    n, mine = outputs_of(tl.program_id(0), outputs, BLOCK_N, GATE)
    rows = weight + tl.minimum(n, outputs - 1).to(tl.int64)[:, None] * stride
    if AHEAD > 0:
        line = tl.arange(0, AHEAD * BLOCK_K // LINE) * LINE
        fetch_ahead(rows + tl.minimum(line, inputs - 1)[None, :])
    await_inputs()
    total = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    for start in tl.range(0, inputs, BLOCK_K, num_stages=STAGES):
        k = start + tl.arange(0, BLOCK_K)
        if EVEN:
            tile, column = tl.load(rows + k[None, :]), tl.load(x + k)
        else:
            there = k < inputs
            tile = tl.load(rows + k[None, :], mask=there[None, :], other=0.0)
            column = tl.load(x + k, mask=there, other=0.0)
        total += tile.to(tl.float32) * column.to(tl.float32)[None, :]
    product = tl.sum(total, axis=1)
    if bias is not None:
        product += tl.load(bias + n, mask=mine, other=0.0).to(tl.float32)
    store_product(out, product[:, None], tl.program_id(0), tl.arange(0, 1), 1, outputs, GATE)


def is_row(x: Tensor) -> bool:
    """Whether x [..., inputs] is one row."""
    return x.numel() == x.shape[-1]


def gemv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, processors: int | None = None, gate: Activation | None = None
) -> Tensor:
    """The one row of x [..., inputs] times weight [outputs, inputs], transposed, plus the bias: [..., outputs]. With
    `gate` act(first half) * second half: [..., outputs / 2].

    All are float16 or bfloat16; sums are float32. Rows of the weight are contiguous. `processors` takes the place of
    what the device has. Gives the same bits each time, and never waits for the device, so it can be captured in a CUDA
    graph.
    """
    outputs, inputs = weight.shape
    out = torch.empty(*x.shape[:-1], gated_width(outputs, gate), dtype=x.dtype, device=x.device)
    block_n = next((n for n in (16, 8) if outputs >= n * PROGRAMS), 4)
    block_k = TILE // block_n
    values = out, x.reshape(-1), weight, bias, inputs, outputs, weight.stride(0)
    programs, processors = -(-outputs // block_n), processors or device_facts(x.device)[1]
    ahead = AHEAD if programs <= WAVE * processors else 0
    cut = block_n, block_k, inputs % block_k == 0, STAGES, ahead, gate and gate.value
    launch(gemv_kernel, (programs,), (*values, *cut), num_warps=WARPS)
    return out
