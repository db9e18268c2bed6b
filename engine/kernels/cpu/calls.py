"""Calls of the compiled kernels; each structure is one of `native.c`."""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_float, c_int, c_long, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from engine.kernels.cpu.library import native
from engine.kernels.options import Options
from engine.kernels.rms_norm import Rounding
from engine.kernels.silu_mul import Activation, in_rows, row_stride

LANES = 16  # block sizes and head dimensions are multiples of it
DTYPES = (torch.float32, torch.bfloat16)
A_THREAD = 16_384  # values a thread must have to do, or waking it takes longer


class _Attention(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("out", "q", "k", "v", "tables", "starts", "lengths", "sinks")),
        *((name, c_long) for name in ("rows", "kv_heads", "group", "head_dim", "block", "window")),
        *(("scale", c_float), ("softcap", c_float), ("half", c_int), ("threads", c_int)),
        *(("next", c_long), ("width", c_long), ("failed", c_int)),
    ]


class _Store(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("k_cache", "v_cache", "k", "v", "blocks", "offsets")),
        *((name, c_long) for name in ("tokens", "kv_heads", "head_dim", "block", "k_stride", "v_stride")),
        ("half", c_int),
    ]


class _Norm(ctypes.Structure):
    _fields_ = [
        *(("out", c_void_p), ("x", c_void_p), ("weight", c_void_p), ("rows", c_long), ("width", c_long)),
        *(("eps", c_float), ("rounding", c_int), ("half", c_int), ("threads", c_int)),
    ]


class _Gate(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("out", "gate", "up")),
        *((name, c_long) for name in ("rows", "columns", "gate_stride", "up_stride")),
        *((name, c_int) for name in ("tanh", "half", "threads")),
    ]


class _Rotation(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("out", "x", "cos", "sin")),
        *((name, c_long) for name in ("batch", "heads", "tokens", "head_dim", "x_batch", "x_head", "x_token")),
        *(("table_batch", c_long), ("table_token", c_long)),
        *((name, c_int) for name in ("second", "table_half", "half", "threads")),
    ]


class _Greedy(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("tokens", "logprobs", "logits")),
        *(("rows", c_long), ("vocabulary", c_long), ("half", c_int), ("threads", c_int)),
    ]


@cache
def _function(name: str) -> Callable[[Any], int]:
    library = native().library
    assert library is not None
    function: Callable[[Any], int] = library[name]
    return function


def _call(name: str, values: ctypes.Structure) -> int:
    return _function(name)(ctypes.byref(values))


def computes(dtype: torch.dtype) -> bool:
    """Whether there are compiled kernels of this dtype."""
    return dtype in DTYPES and native().library is not None


def serves(dtype: torch.dtype, block_size: int, head_dim: int) -> bool:
    """Whether there are compiled kernels for a cache of this kind."""
    return computes(dtype) and not (block_size % LANES or head_dim % LANES)


def kernels_in_words(dtype: torch.dtype) -> str:
    """ "compiled: by /usr/bin/cc", or "torch's: no C compiler is here ..."."""
    found = native()
    if found.library is None:
        return f"torch's: {found.why}"
    return f"compiled: {found.why}" if computes(dtype) else f"torch's: there are none of {dtype}"


def allocate_keys(blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> Tensor:
    """A K cache of logical shape `[blocks, block_size, kv_heads, head_dim]`; a block's keys lie side by side, value by
    value: a vector of the processor is so many keys, and no product is summed over its lanes."""
    return torch.zeros(blocks, kv_heads, head_dim, block_size, dtype=dtype).permute(0, 3, 1, 2)


def allocate_values(blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> Tensor:
    """A V cache of the same logical shape, stored head first in each block."""
    return torch.zeros(blocks, kv_heads, block_size, head_dim, dtype=dtype).transpose(1, 2)


@dataclass(slots=True)
class NativeDecode:
    """What a step's decode rows attend to: row r owns the blocks `tables[starts[r]:]`, and sees `lengths[r]` keys. All
    int32."""

    rows: int
    tables: Tensor
    starts: Tensor
    lengths: Tensor

    def attend(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, options: Options) -> Tensor:
        """One query a row: q and out `[rows, heads, head_dim]`. Caches as made here."""
        q = q.contiguous()
        rows, heads, head_dim = q.shape
        block, kv_heads = k_cache.shape[1:3]
        out = torch.empty_like(q)
        sinks = None if options.sinks is None else options.sinks.float().contiguous()
        seen = (self.tables, self.starts, self.lengths)
        failed = _call(
            "decode_attention",
            _Attention(
                *(x.data_ptr() for x in (out, q, k_cache, v_cache, *seen)),
                None if sinks is None else sinks.data_ptr(),
                *(rows, kv_heads, heads // kv_heads, head_dim, block, options.window or 0),
                *(options.scale, options.softcap or 0.0, q.dtype is torch.bfloat16, torch.get_num_threads()),
            ),
        )
        if failed:
            raise MemoryError(f"no memory for the scores of {int(self.lengths.max()):,} keys")
        return out


def plan_decode(tables: Sequence[Sequence[int]], lengths: Sequence[int]) -> NativeDecode:
    """From each row's block table and its context length, this step's token included."""
    flat: list[int] = []
    starts: list[int] = []
    for table in tables:
        starts.append(len(flat))
        flat += table
    return NativeDecode(len(tables), *(torch.tensor(x, dtype=torch.int32) for x in (flat, starts, lengths)))


def store_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, blocks: Tensor, offsets: Tensor) -> None:
    """Puts k and v `[tokens, kv_heads, head_dim]` at `blocks` and `offsets` int32 `[tokens]` into caches made here."""
    k, v = (x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous() for x in (k, v))
    tokens, kv_heads, head_dim = k.shape
    places = (x.data_ptr() for x in (k_cache, v_cache, k, v, blocks, offsets))
    sizes = tokens, kv_heads, head_dim, k_cache.shape[1], k.stride(0), v.stride(0)
    _call("store_kv", _Store(*places, *sizes, k.dtype is torch.bfloat16))


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, rounding: Rounding) -> Tensor:
    """The normed rows of `x` [..., width], of its dtype, contiguous; `weight` [width] or None."""
    x = x.contiguous()
    out = torch.empty_like(x)
    if weight is not None and (weight.dtype is not x.dtype or not weight.is_contiguous()):
        weight = weight.to(x.dtype).contiguous()
    width = x.shape[-1]
    held = out.data_ptr(), x.data_ptr(), None if weight is None else weight.data_ptr()
    sizes = x.numel() // max(width, 1), width, eps, rounding.value
    _call("rms_norm", _Norm(*held, *sizes, x.dtype is torch.bfloat16, _threads(x.numel())))
    return out


def act_mul(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    """act(gate) * up, contiguous; both [..., columns], one shape and dtype. Raises NotImplementedError for gelu by the
    error function."""
    if activation is Activation.GELU:
        raise NotImplementedError("gelu by the error function is torch's")
    columns = gate.shape[-1]
    gate, up = (in_rows(x) for x in (gate, up))
    out = torch.empty(gate.shape, dtype=gate.dtype)
    sizes = out.numel() // max(columns, 1), columns, row_stride(gate), row_stride(up)
    kind = activation is Activation.GELU_TANH, gate.dtype is torch.bfloat16
    _call("act_mul", _Gate(*(x.data_ptr() for x in (out, gate, up)), *sizes, *kind, _threads(out.numel())))
    return out


def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys [batch, heads, tokens, head_dim], turned; new tensors that lie as [batch, tokens, heads,
    head_dim]. `cos` and `sin` [batch or 1, tokens, head_dim], or half as wide where both halves of a head share them,
    of the dtype of q or float32."""
    cos, sin = (x if x.stride(-1) == 1 else x.contiguous() for x in (cos, sin))
    if cos.stride() != sin.stride():
        cos, sin = cos.contiguous(), sin.contiguous()
    return _turned(q, cos, sin), _turned(k, cos, sin)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    if x.stride(-1) != 1:
        x = x.contiguous()
    batch, heads, tokens, head_dim = x.shape
    out = torch.empty(batch, tokens, heads, head_dim, dtype=x.dtype)
    places = (t.data_ptr() for t in (out, x, cos, sin))
    table = cos.stride(0) if cos.shape[0] > 1 else 0, cos.stride(1)
    second = head_dim // 2 if cos.shape[-1] == head_dim else 0
    kinds = cos.dtype is torch.bfloat16, x.dtype is torch.bfloat16
    sizes = batch, heads, tokens, head_dim, *x.stride()[:3], *table, second, *kinds, _threads(x.numel())
    _call("rotate", _Rotation(*places, *sizes))
    return out.transpose(1, 2)


def greedy(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The first of the highest of each row of logits `[rows, vocabulary]`, int64, and its log-probability, float32; NaN
    where a logit is."""
    logits = logits.contiguous()
    rows, vocabulary = logits.shape
    tokens, logprobs = torch.empty(rows, dtype=torch.long), torch.empty(rows)
    places = (x.data_ptr() for x in (tokens, logprobs, logits))
    sizes = rows, vocabulary, logits.dtype is torch.bfloat16, _threads(logits.numel())
    _call("greedy", _Greedy(*places, *sizes))
    return tokens, logprobs


def _threads(values: int) -> int:
    """As many as have enough to do."""
    return 1 if values < A_THREAD else min(torch.get_num_threads(), values // A_THREAD + 1)
