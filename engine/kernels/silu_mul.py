"""Triton kernel of a gated MLP's middle: act(gate) * up in one launch, for the activations that decoders use.

The activation is computed in float32 and rounded to the dtype, then multiplied and rounded again, as two separate
operations of torch do.
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import constant, jit, launch, next_power_of_two, tl
from engine.kernels.rms_norm import two_levels

BOUND = constant(7.0)  # of what `CLAMPED` takes
TILE = 1024  # elements of a program, of one row but where rows are shorter: 8 a thread of four warps


class Activation(Enum):
    SILU = 0
    GELU_TANH = 1
    GELU = 2
    CLAMPED = 3  # of gpt-oss' experts, which bounds what is gated too


@jit
def act(x, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
    """The activation of float32."""
    if ACTIVATION == 0:
        acted = x / (1.0 + tl.exp(-x))
    elif ACTIVATION == 1:
        # 0.5 * (1 + tanh(z)) is 1 / (1 + exp(-2 z)); z = sqrt(2 / pi) * (x + 0.044715 x³)
        acted = x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    elif ACTIVATION == 2:
        acted = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        x = tl.minimum(x, BOUND)
        acted = x / (1.0 + tl.exp(-1.702 * x))
    return acted


@jit
def gated(x, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
    """What an activation is multiplied with, of float32."""
    if ACTIVATION == 3:
        x = tl.minimum(tl.maximum(x, -BOUND), BOUND) + 1.0
    return x


@jit(do_not_specialize=["rows"])
def act_mul_kernel(
    out: tl.tensor,  # [rows, columns], contiguous
    gate: tl.tensor,
    up: tl.tensor,
    gate_stride: tl.tensor,
    up_stride: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    ACTIVATION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
) -> None:
    await_inputs()
    row = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    column = (tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS))[None, :]
    inside = (row < rows) & (column < columns)
    x = tl.load(gate + row * gate_stride + column, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(up + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)
    acted = act(x, ACTIVATION)
    acted = acted.to(out.dtype.element_ty).to(tl.float32)
    acted *= gated(factor, ACTIVATION)
    tl.store(out + row * columns + column, acted.to(out.dtype.element_ty), mask=inside)


def act_mul(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    """act(gate) * up, contiguous; both [..., columns], one shape and dtype. Halves of one product are read where they
    lie. Nothing waits for the device."""
    gate, up = in_rows(gate), in_rows(up)
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if not out.numel():
        return out
    columns = gate.shape[-1]
    rows = gate.numel() // columns
    block_columns = min(TILE, next_power_of_two(columns))
    block_rows = TILE // block_columns
    sizes = row_stride(gate), row_stride(up), rows, columns, activation.value, block_rows, block_columns
    grid = -(-rows // block_rows), -(-columns // block_columns)
    # Without fusion: torch rounds each product by itself.
    launch(act_mul_kernel, grid, (out, gate, up, *sizes), fused=False)
    return out


def in_rows(x: Tensor) -> Tensor:
    """`x`, or a copy where its rows do not lie evenly."""
    if x.is_contiguous():
        return x
    found = two_levels(x)
    return x if x.stride(-1) == 1 and found is not None and found[0] == 1 else x.contiguous()


def row_stride(x: Tensor) -> int:
    """Elements from a row to the next. That of a single row is its length, or the kernel would be compiled for it."""
    found = None if x.is_contiguous() else two_levels(x)
    return found[3] if found is not None and found[1] > 1 else x.shape[-1]
