"""Triton kernels of one token of each of many sequences, through a layer that keeps a state of them: a convolution over
its last tokens, and the gated delta rule. States are changed where they lie, but for those of the last slot, which is
nobody's: several rows that fill up a captured step have it."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import jit, launch, tl
from engine.kernels.recurrence import Recurrence, Sequences
from engine.kernels.silu_mul import in_rows, row_stride

CHANNELS = 256  # of a program
WIDEST = 128 * 128  # numbers of a head's state: a program holds all of them in its registers


def steps(key: int, value: int) -> bool:
    """Whether `delta_rule` serves heads of these widths."""
    powers = not (key & (key - 1) or value & (value - 1))
    return powers and min(key, value) >= 16 and key * value <= WIDEST


@jit(do_not_specialize=["nobody", "x_stride", "channels"])
def convolution_kernel(
    out: tl.tensor,  # [rows, channels]
    recent: tl.tensor,  # [slots, TAPS, channels]
    x: tl.tensor,  # [rows, channels], rows x_stride apart
    weight: tl.tensor,  # [TAPS, channels], float32
    bias: tl.tensor,  # [channels], float32
    slots: tl.tensor,
    nobody: tl.tensor,
    x_stride: tl.tensor,
    channels: tl.tensor,
    TAPS: tl.constexpr,
    BIASED: tl.constexpr,
    SILU: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    await_inputs()
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < channels
    slot = tl.load(slots + row).to(tl.int64)
    held = inside & (slot + 0 * channel != nobody)
    kept = recent + slot * TAPS * channels + channel
    now = tl.load(x + row * x_stride + channel, mask=inside, other=0.0)
    total = now.to(tl.float32) * tl.load(weight + (TAPS - 1) * channels + channel, mask=inside, other=0.0)
    if BIASED:
        total += tl.load(bias + channel, mask=inside, other=0.0)
    for tap in tl.static_range(TAPS - 1):
        before = tl.load(kept + (tap + 1) * channels, mask=held, other=0.0)
        total += before.to(tl.float32) * tl.load(weight + tap * channels + channel, mask=inside, other=0.0)
        tl.store(kept + tap * channels, before, mask=held)
    tl.store(kept + (TAPS - 1) * channels, now, mask=held)
    if SILU:
        total = total.to(out.dtype.element_ty).to(tl.float32)
        total = total / (1.0 + tl.exp(-total))
    tl.store(out + row * channels + channel, total.to(out.dtype.element_ty), mask=inside)


@jit
def of_length(x, by):  # type: ignore[no-untyped-def]
    """Of length 1 times `by`."""
    return x * (by / tl.sqrt(tl.sum(x * x) + 1e-6))


@jit(do_not_specialize=["nobody", "gate_stride", "write_stride", "forget_stride"])
def delta_kernel(
    out: tl.tensor,  # [rows, HEADS, VALUE]
    states: tl.tensor,  # [slots, HEADS, KEY, VALUE], float32
    mixed: tl.tensor,  # [rows, ...]: queries and keys [GROUPS, KEY] each, then values [HEADS, VALUE]
    gate: tl.tensor,
    write: tl.tensor,
    forget: tl.tensor,
    decay: tl.tensor,
    bias: tl.tensor,
    norm: tl.tensor,
    slots: tl.tensor,
    nobody: tl.tensor,
    gate_stride: tl.tensor,
    write_stride: tl.tensor,
    forget_stride: tl.tensor,
    eps: tl.tensor,
    GROUPS: tl.constexpr,
    HEADS: tl.constexpr,
    KEY: tl.constexpr,
    VALUE: tl.constexpr,
) -> None:
    await_inputs()
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dtype = out.dtype.element_ty
    keys, values = tl.arange(0, KEY), tl.arange(0, VALUE)
    group, width = head * GROUPS // HEADS, 2 * GROUPS * KEY + HEADS * VALUE
    told = mixed + row * width
    q = of_length(tl.load(told + group * KEY + keys).to(tl.float32), KEY**-0.5)
    k = of_length(tl.load(told + (GROUPS + group) * KEY + keys).to(tl.float32), 1.0)
    v = tl.load(told + 2 * GROUPS * KEY + head * VALUE + values).to(tl.float32)
    share = 1.0 / (1.0 + tl.exp(-tl.load(write + row * write_stride + head).to(tl.float32)))
    share = share.to(dtype).to(tl.float32)
    forgotten = tl.load(forget + row * forget_stride + head).to(tl.float32) + tl.load(bias + head)
    softplus = tl.where(forgotten > 20.0, forgotten, tl.log(1.0 + tl.exp(tl.minimum(forgotten, 20.0))))
    slot = tl.load(slots + row).to(tl.int64)
    place = states + (slot * HEADS + head) * KEY * VALUE + keys[:, None] * VALUE + values[None, :]
    held = slot + 0 * (keys[:, None] + values[None, :]) != nobody
    state = tl.load(place, mask=held, other=0.0) * tl.exp(-tl.load(decay + head) * softplus)
    lacks = (v - tl.sum(state * k[:, None], axis=0)) * share
    state += k[:, None] * lacks[None, :]
    tl.store(place, state, mask=held)
    said = tl.sum(state * q[:, None], axis=0).to(dtype).to(tl.float32)
    normed = (said / tl.sqrt(tl.sum(said * said) / VALUE + eps)).to(dtype).to(tl.float32)
    normed = (normed * tl.load(norm + values)).to(dtype).to(tl.float32)
    z = tl.load(gate + row * gate_stride + head * VALUE + values).to(tl.float32)
    tl.store(out + (row * HEADS + head) * VALUE + values, (normed * (z / (1.0 + tl.exp(-z)))).to(dtype))


def convolution(x: Tensor, recent: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, whose: Sequences) -> Tensor:
    """As `engine.kernels.cpu.states.convolution`, of a token of each sequence, which has some before it."""
    x = in_rows(x)
    rows, channels = x.shape
    out = torch.empty(rows, channels, dtype=x.dtype, device=x.device)
    tensors = out, recent, x, weight, weight if bias is None else bias, whose.slots, len(recent) - 1
    how = recent.shape[2], bias is not None, silu, CHANNELS
    launch(convolution_kernel, (rows, -(-channels // CHANNELS)), (*tensors, row_stride(x), channels, *how))
    return out


def delta_rule(
    mixed: Tensor, gate: Tensor, write: Tensor, forget: Tensor, states: Tensor, fixed: Recurrence, whose: Sequences
) -> Tensor:
    """As `engine.kernels.cpu.states.delta_rule`, of a token of each sequence, which has some before it."""
    mixed, (gate, write, forget) = mixed.contiguous(), (in_rows(x) for x in (gate, write, forget))
    rows, (heads, key, value) = len(mixed), states.shape[1:]
    out = torch.empty(rows, heads * value, dtype=mixed.dtype, device=mixed.device)
    tensors = out, states, mixed, gate, write, forget, fixed.decay, fixed.bias, fixed.norm, whose.slots, len(states) - 1
    strides = (row_stride(x) for x in (gate, write, forget))
    sizes = *strides, fixed.eps, fixed.groups, heads, key, value
    launch(delta_kernel, (rows, heads), (*tensors, *sizes), num_warps=8 if key * value > 4096 else 4)
    return out
