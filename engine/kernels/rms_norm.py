"""Triton kernels of RMSNorm (https://arxiv.org/abs/1910.07467): y = x / sqrt(mean(x²) + eps), times a weight, in one
launch; and of a layer's end, where its output is added to the residual stream and the sum normed for the next one.
Sums and quotients are float32; where a result is rounded to the dtype is told by `Rounding`."""

from __future__ import annotations

from enum import Enum
from math import prod

import torch
from torch import Tensor

from engine.kernels.dependent_launch import await_inputs, fetch_ahead
from engine.kernels.jit import constant, jit, launch, next_power_of_two, tl

LINE = constant(32)  # elements of a cache line, of float32
WIDEST = 16_384  # elements of a row, held in registers
TILE = 1024  # elements of a program whose rows are short
A_THREAD = 8  # elements: 16 bytes of a 16-bit dtype, one load
MOST_WARPS = 16


class Rounding(Enum):
    """Where the normed row and its product with the weight are rounded to the dtype."""

    NONE = 0  # no weight
    TWICE = 1  # weight * round(normed): Llama, Qwen, Mistral
    ONCE = 2  # round(normed * weight): OLMo 2, GPT-OSS
    ONE_PLUS = 3  # round(normed * (1 + weight)): Gemma 1 to 3


@jit
def weighted(normed, scale, dtype: tl.constexpr, ROUNDING: tl.constexpr):  # type: ignore[no-untyped-def]
    """Normed values times their float32 weights, rounded to `dtype` where `Rounding` says; float32."""
    if ROUNDING == 1:  # `Rounding.TWICE`
        return normed.to(dtype).to(tl.float32) * scale
    elif ROUNDING == 2:
        return normed * scale
    else:
        return normed * (1.0 + scale)


@jit
def fetch_weight(weight, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """A norm's, if it has one, ahead: since a step used it last, it has read more than a cache holds."""
    if weight is not None:
        fetch_ahead(weight + tl.minimum(tl.arange(0, (BLOCK_WIDTH + LINE - 1) // LINE) * LINE, WIDTH - 1))


@jit
def normed_rows(  # type: ignore[no-untyped-def]
    values, weight, column, eps, dtype: tl.constexpr, ROUNDING: tl.constexpr, WIDTH: tl.constexpr
):
    """Rows of float32 `values`, normed; of the products with a weight what `ROUNDING` says is rounded to `dtype`."""
    mean = tl.sum(values * values, axis=1) / WIDTH
    normed = values * tl.rsqrt(mean + eps)[:, None]
    if ROUNDING != 0:
        scale = tl.load(weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)[None, :]
        normed = weighted(normed, scale, dtype, ROUNDING)
    return normed.to(dtype)


@jit(do_not_specialize=["rows", "inner"])
def rms_norm_kernel(
    out: tl.tensor,  # row r lies at r * out_stride
    x: tl.tensor,  # row r lies at r // inner * outer_stride + r % inner * inner_stride
    weight: tl.tensor,
    rows: tl.tensor,
    inner: tl.tensor,
    outer_stride: tl.tensor,
    inner_stride: tl.tensor,
    out_stride: tl.tensor,
    eps: tl.tensor,
    ROUNDING: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
) -> None:
    fetch_weight(weight, WIDTH, BLOCK_WIDTH)
    await_inputs()
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK_WIDTH)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    at = row // inner * outer_stride + row % inner * inner_stride
    values = tl.load(x + at[:, None] + column[None, :], mask=inside, other=0.0).to(tl.float32)
    normed = normed_rows(values, weight, column, eps, out.dtype.element_ty, ROUNDING, WIDTH)
    tl.store(out + row[:, None] * out_stride + column[None, :], normed, mask=inside)


@jit(do_not_specialize=["rows"])
def add_norm_kernel(
    total: tl.tensor,  # [rows, WIDTH], contiguous, as are all
    out: tl.tensor,
    x: tl.tensor,
    residual: tl.tensor,
    before: tl.tensor,  # the weight of a norm of x, before it is added; or None
    weight: tl.tensor,
    rows: tl.tensor,
    eps: tl.tensor,
    ROUNDING: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
) -> None:
    fetch_weight(before, WIDTH, BLOCK_WIDTH)
    fetch_weight(weight, WIDTH, BLOCK_WIDTH)
    await_inputs()
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK_WIDTH)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    at = row[:, None] * WIDTH + column[None, :]
    dtype: tl.constexpr = out.dtype.element_ty
    values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if before is not None:
        values = normed_rows(values, before, column, eps, dtype, ROUNDING, WIDTH).to(tl.float32)
    summed = (tl.load(residual + at, mask=inside, other=0.0).to(tl.float32) + values).to(dtype)
    tl.store(total + at, summed, mask=inside)
    normed = normed_rows(summed.to(tl.float32), weight, column, eps, dtype, ROUNDING, WIDTH)
    tl.store(out + at, normed, mask=inside)


def add_norm(
    x: Tensor, residual: Tensor, before: Tensor | None, weight: Tensor, eps: float, rounding: Rounding
) -> tuple[Tensor, Tensor]:
    """residual + x, and its rows normed; with `before`, x is normed by that weight first. All [..., width], of one
    dtype. Nothing waits for the device."""
    x, residual = x.contiguous(), residual.contiguous()
    total, out = torch.empty_like(residual), torch.empty_like(residual)
    width = x.shape[-1]
    assert width <= WIDEST
    rows, block_rows, block_width, warps = cut(x)
    if rows:
        values = total, out, x, residual, before, weight, rows, eps, rounding.value, width, block_rows, block_width
        launch(add_norm_kernel, (-(-rows // block_rows),), values, fused=False, num_warps=warps)
    return total, out


def cut(x: Tensor) -> tuple[int, int, int, int]:
    """Rows; rows and padded width of a program, and its warps."""
    width = x.shape[-1]
    block_width = next_power_of_two(width)
    block_rows = max(1, TILE // block_width)
    warps = max(1, min(MOST_WARPS, block_rows * block_width // (32 * A_THREAD)))
    return x.numel() // max(1, width), block_rows, block_width, warps


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, rounding: Rounding) -> Tensor:
    """The normed rows of `x` [..., width], of its dtype; `weight` [width] or None. A dense `x` of any order of its
    dimensions gives a result that lies as it does, other views a contiguous one. Nothing waits for the device."""
    if x.stride(-1) != 1 or x.shape[-1] == 0:
        x = x.contiguous()
    out = torch.empty_like(x)
    if not x.numel():
        return out
    width = x.shape[-1]
    assert width <= WIDEST
    rows, block_rows, block_width, warps = cut(x)
    found: tuple[int, int, int, int] | None = (1, rows, 0, width)  # dense: rows lie one after another in any order
    if out.stride() != x.stride():  # a view with gaps
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        found = two_levels(x)
    if found is None:
        x, found = x.contiguous(), (1, rows, 0, width)
    outer, inner, outer_stride, inner_stride = found
    assert outer * inner == rows
    sizes = rounding.value, width, block_rows, block_width
    strides = rows, inner, outer_stride, inner_stride, width
    values = out, x, weight, *strides, eps, *sizes
    # Without fusion: torch rounds each product by itself.
    launch(rms_norm_kernel, (-(-rows // block_rows),), values, fused=False, num_warps=warps)
    return out


def two_levels(x: Tensor) -> tuple[int, int, int, int] | None:
    """(outer, inner, outer stride, inner stride) by which the rows of a view lie, or None where it takes more."""
    levels: list[tuple[int, int]] = []  # (size, stride), inmost last
    for size, stride in zip(x.shape[:-1], x.stride()[:-1]):
        if size == 1:
            continue
        if levels and levels[-1][1] == size * stride:
            levels[-1] = (levels[-1][0] * size, stride)
        else:
            levels.append((size, stride))
    if len(levels) > 2:
        return None
    outer, inner = ([(1, 0), (1, 0)] + levels)[-2:]
    assert outer[0] * inner[0] == prod(x.shape[:-1])
    return outer[0], inner[0], outer[1], inner[1]
