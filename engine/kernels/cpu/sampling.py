"""Calls of the compiled kernels that draw tokens, and hold them to grammars: `bits` int32 `[rows, words]` are the
tokens that may come next, token 0 the lowest bit of the first word; a row without any bit may say everything."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.kernels.cpu import structures as held
from engine.kernels.cpu.calls import part_of, run, threads_for

Bits = NDArray[np.int32]


def among_allowed(
    tokens: Tensor, logprobs: Tensor, logits: Tensor, rows: Sequence[int], bits: Bits, choose: bool
) -> tuple[Tensor, Tensor, NDArray[np.int32]]:
    """Of what `greedy` gave for logits `[all rows, vocabulary]`, in the rows that are held to a grammar: the tokens,
    their log-probabilities, and which of them are ruled out, 1 or 0, `[rows]`. With `choose` the highest of those that
    are allowed then stands in its place, in `tokens` and `logprobs`."""
    logits, count = logits.contiguous(), len(rows)
    likeliest, theirs = torch.empty(count, dtype=torch.long), torch.empty(count)
    refused, at = np.empty(count, np.int32), np.array(rows, np.int64)
    places = (x.data_ptr() for x in (tokens, logprobs, likeliest, theirs))
    sizes = logits.shape[1], _stride(bits), choose
    part = part_of(count, logits)
    ours = refused.ctypes.data, logits.data_ptr(), at.ctypes.data, bits.ctypes.data
    run(held.Allowed(part, *places, *ours, *sizes), threads_for(count * logits.shape[1]))
    return likeliest, theirs, refused


def rule_out(logits: Tensor, bits: Bits) -> Tensor:
    """A copy of logits float32 `[rows, vocabulary]` that is -inf where a token is not allowed."""
    logits = logits.contiguous()
    out = torch.empty_like(logits)
    places = out.data_ptr(), logits.data_ptr(), bits.ctypes.data
    run(held.Masked(part_of(len(logits), logits), *places, logits.shape[1], _stride(bits)), threads_for(logits.numel()))
    return out


def draw(
    logits: Tensor,
    temperatures: Sequence[float],
    floors: Sequence[float],
    noises: NDArray[np.float64],
    rows: Sequence[int] = (),
    bits: Bits | None = None,
) -> Tensor:
    """A token a row of logits `[rows, vocabulary]`, int64, by the rule of `engine.runner.sampling`, from all that weigh
    at least the row's floor beside the highest; `rows` are those that `bits` hold to a grammar."""
    logits, count = logits.contiguous(), len(logits)
    tokens, sizes = torch.empty(count, dtype=torch.long), np.array([temperatures, floors], np.float32)
    places = np.full(count, -1, np.int64)
    if bits is not None:
        places[rows] = np.arange(len(rows))
    ours = sizes[0].ctypes.data, sizes[1].ctypes.data, noises.ctypes.data, places.ctypes.data
    masks, words = (None, 0) if bits is None else (bits.ctypes.data, _stride(bits))
    part = part_of(count, logits)
    run(
        held.Draw(part, tokens.data_ptr(), logits.data_ptr(), *ours, masks, logits.shape[1], words),
        threads_for(logits.numel()),
    )
    return tokens


def _stride(bits: Bits) -> int:
    assert bits.dtype == np.int32
    assert bits.strides[1] == bits.itemsize
    return bits.strides[0] // bits.itemsize
