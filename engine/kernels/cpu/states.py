"""Calls of the compiled kernels of layers that keep a state of a sequence."""

import torch
from torch import Tensor

from engine.kernels.cpu import structures as held
from engine.kernels.cpu.calls import LANES, computes, part_of, run, threads_for
from engine.kernels.recurrence import Recurrence, Sequences
from engine.kernels.silu_mul import in_rows, row_stride

WIDEST = 256  # of a head


def recurs(dtype: torch.dtype, key: int, value: int) -> bool:
    """Whether `delta_rule` serves heads of these widths."""
    return computes(dtype) and not (key % LANES or value % LANES) and max(key, value) <= WIDEST


def convolution(x: Tensor, recent: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, whose: Sequences) -> Tensor:
    """A causal convolution of each channel of x `[tokens, channels]`, after what `recent` `[slots, channels, taps]`,
    channels side by side, keeps of their sequences, and is changed to; `weight` `[taps, channels]` and `bias`
    `[channels]` float32."""
    x = in_rows(x)
    tokens, channels = x.shape
    out = torch.empty(tokens, channels, dtype=x.dtype)
    places = (t.data_ptr() for t in (out, recent, x, weight))
    there = None if bias is None else bias.data_ptr()
    sequences = whose.slots.data_ptr(), whose.positions.data_ptr()
    sizes = channels, recent.shape[2], row_stride(x), silu
    run(held.Convolution(part_of(tokens, x), *places, there, *sequences, *sizes), threads_for(out.numel()))
    return out


def delta_rule(
    mixed: Tensor, gate: Tensor, write: Tensor, forget: Tensor, states: Tensor, fixed: Recurrence, whose: Sequences
) -> Tensor:
    """The gated delta rule, normed and gated: `[tokens, heads * value]`. `mixed` `[tokens, ...]` are queries and keys
    of each group and values of each head; `gate` `[tokens, heads * value]`, `write` and `forget` `[tokens, heads]`;
    `states` float32 `[slots, heads, key, value]`, which are changed to what is there after the tokens."""
    gate, write, forget = (in_rows(x) for x in (gate, write, forget))
    mixed = mixed.contiguous()
    tokens, (heads, key, value) = len(mixed), states.shape[1:]
    out = torch.empty(tokens, heads * value, dtype=mixed.dtype)
    places = (t.data_ptr() for t in (out, states, mixed, gate, write, forget, fixed.decay, fixed.bias, fixed.norm))
    sequences = whose.slots.data_ptr(), whose.positions.data_ptr()
    sizes = fixed.groups, heads, key, value, *(row_stride(x) for x in (gate, write, forget)), fixed.eps
    run(held.Delta(part_of(tokens, mixed), *places, *sequences, *sizes), threads_for(out.numel() * key))
    return out
