"""Calls of the compiled kernels."""

from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from engine.kernels.attention.options import Options
from engine.kernels.cpu import structures as held
from engine.kernels.cpu.large_pages import LargePages, Zeros, zeros_in_large_pages
from engine.kernels.cpu.library import function, native, work
from engine.kernels.cpu.recorder import recording
from engine.kernels.cpu.strides import spread
from engine.kernels.cpu.structures import Part, Structure
from engine.kernels.rms_norm import Rounding
from engine.kernels.silu_mul import Activation, in_rows, row_stride

LANES = 16  # block sizes and head dimensions are multiples of it
DTYPES = (torch.float32, torch.bfloat16)
KINDS = (*DTYPES, torch.int8, torch.uint8)  # of a cache; the last two are codes
A_THREAD = 16_384  # values a thread must have to do, or waking it takes longer


def run(values: Structure, threads: int) -> None:
    """Raises MemoryError where there was none for it. While a step is recorded it is noted alone: what it would compute
    is of no use, and of a step as large as there is room for takes longer than all else of a load."""
    recorder = recording.get()
    if recorder is not None:
        recorder.called(values)
    elif function("run_part")(work(values.work), byref(values), threads):
        raise MemoryError(f"no memory for {values.work}")


def part_of(rows: int, x: Tensor) -> Part:
    return Part(rows, 0, 0, x.dtype is torch.bfloat16, 0)


def _kind(cache: Tensor) -> int:
    """As `native/cache.h` counts what a cache holds."""
    return KINDS.index(cache.dtype)


def computes(dtype: torch.dtype) -> bool:
    """Whether there are compiled kernels of this dtype."""
    return dtype in DTYPES and native().library is not None


def serves(dtype: torch.dtype, block_size: int, head_dim: int) -> bool:
    """Whether there are compiled kernels for a cache of this kind."""
    return computes(dtype) and not (block_size % LANES or head_dim % LANES)


def multiplies(weight: Tensor) -> bool:
    """Whether `pack` and `product` serve it: of two values of bfloat16 at a time, so its depth must be even."""
    return weight.dim() == 2 and weight.shape[1] % 2 == 0 and computes(weight.dtype)


def kernels_in_words(dtype: torch.dtype) -> str:
    """ "compiled: by /usr/bin/cc", or "torch's: no C compiler is here ..."."""
    found = native()
    if found.library is None:
        return f"torch's: {found.why}"
    return f"compiled: {found.why}" if computes(dtype) else f"torch's: there are none of {dtype}"


def allocate_keys(
    blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype, zeros: Zeros = zeros_in_large_pages
) -> Tensor:
    """A K cache of logical shape `[blocks, block_size, kv_heads, head_dim]`; a block's keys lie side by side, value by
    value: a vector of the processor is so many keys, and no product is summed over its lanes."""
    return zeros((blocks, kv_heads, head_dim, block_size), dtype).permute(0, 3, 1, 2)


def allocate_values(
    blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype, zeros: Zeros = zeros_in_large_pages
) -> Tensor:
    """A V cache of the same logical shape, stored head first in each block."""
    return zeros((blocks, kv_heads, block_size, head_dim), dtype).transpose(1, 2)


@dataclass(slots=True)
class NativeDecode:
    """What a step's queries attend to: query r reads the blocks `tables[starts[r]:]`, and sees `lengths[r]` keys. All
    int32."""

    rows: int
    tables: Tensor
    starts: Tensor
    lengths: Tensor

    def attend(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, options: Options) -> Tensor:
        """q and out `[rows, heads, head_dim]`. Caches as made here, or by `engine.kernels.cpu.quantized`."""
        q = q.contiguous()
        rows, heads, head_dim = q.shape
        block, kv_heads = k_cache.shape[1:3]
        out = torch.empty_like(q)
        sinks = None if options.sinks is None else options.sinks.float().contiguous()
        seen = (self.tables, self.starts, self.lengths)
        values = held.Attention(
            part_of(rows, q),
            *(x.data_ptr() for x in (out, q, k_cache, v_cache, *seen)),
            None if sinks is None else sinks.data_ptr(),
            *(kv_heads, heads // kv_heads, head_dim, block, options.window or 0),
            *(options.scale, options.softcap or 0.0, _kind(k_cache)),
        )
        run(values, torch.get_num_threads())
        return out


def plan_decode(tables: Sequence[Sequence[int]], firsts: Sequence[int], counts: Sequence[int]) -> NativeDecode:
    """From each row's block table, the position of the first of its tokens in this step, and how many it has: every
    token is a query of its own, that sees the tokens before it and itself."""
    sizes = [len(table) for table in tables]
    begins = np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0)
    lengths = np.concatenate([np.arange(first, first + count) for first, count in zip(firsts, counts)]) + 1
    flat = np.fromiter(chain.from_iterable(tables), np.int32, sum(sizes))
    held = (flat, np.repeat(begins, counts), lengths)
    return NativeDecode(len(lengths), *(torch.from_numpy(x.astype(np.int32, copy=False)) for x in held))


def store_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, blocks: Tensor, offsets: Tensor) -> None:
    """Puts k and v `[tokens, kv_heads, head_dim]` at `blocks` and `offsets` int32 `[tokens]` into caches as those of
    `attend`."""
    k, v = (x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous() for x in (k, v))
    tokens, kv_heads, head_dim = k.shape
    places = (x.data_ptr() for x in (k_cache, v_cache, k, v, blocks, offsets))
    sizes = kv_heads, head_dim, k_cache.shape[1], k.stride(0), v.stride(0)
    run(held.Store(part_of(tokens, k), *places, *sizes, _kind(k_cache)), threads_for(k.numel()))


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, rounding: Rounding) -> Tensor:
    """The normed rows of `x` [..., width], of its dtype, contiguous; `weight` [width] or None."""
    if spread(x) is None:
        order = sorted(range(x.dim() - 1), key=x.stride, reverse=True) + [x.dim() - 1]
        if order != [*range(x.dim())]:  # heads before tokens, say: as they lie, and back
            back = sorted(range(x.dim()), key=order.__getitem__)
            return rms_norm(x.permute(order), weight, eps, rounding).permute(back)
        x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype)
    if weight is not None and (weight.dtype is not x.dtype or not weight.is_contiguous()):
        weight = weight.to(x.dtype).contiguous()
    width = x.shape[-1]
    places = out.data_ptr(), x.data_ptr(), None if weight is None else weight.data_ptr()
    rows = x.numel() // max(width, 1)
    side_by_side, stride = spread(x) or (width, width)
    sizes = width, max(side_by_side // max(width, 1), 1), stride
    run(held.Norm(part_of(rows, x), *places, *sizes, eps, rounding.value), threads_for(x.numel()))
    return out


def act_mul(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    """act(gate) * up, contiguous; both [..., columns], one shape and dtype. Raises NotImplementedError for gelu by the
    error function."""
    if activation is Activation.GELU:
        raise NotImplementedError("gelu by the error function is torch's")
    columns = gate.shape[-1]
    gate, up = (in_rows(x) for x in (gate, up))
    out = torch.empty(gate.shape, dtype=gate.dtype)
    places = (x.data_ptr() for x in (out, gate, up))
    sizes = columns, row_stride(gate), row_stride(up)
    rows = out.numel() // max(columns, 1)
    by_tanh = activation is Activation.GELU_TANH
    run(held.Gate(part_of(rows, gate), *places, *sizes, by_tanh), threads_for(out.numel()))
    return out


def rotate(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, neighbours: bool = False, partly: bool = False
) -> tuple[Tensor, Tensor]:
    """Queries and keys [batch, heads, tokens, head_dim], turned; new tensors that lie as [batch, tokens, heads,
    head_dim]; `partly`: as much of them as tables are wide. Pairs are (i, i + head_dim / 2), or `neighbours` (2 i,
    2 i + 1), which end as those. `cos` and `sin` [batch or 1, tokens, head_dim], or half as wide where both halves of a
    head share them, of the dtype of q or float32."""
    cos, sin = (x if x.stride(-1) == 1 else x.contiguous() for x in (cos, sin))
    if cos.stride() != sin.stride():
        cos, sin = cos.contiguous(), sin.contiguous()
    return _turned(q, cos, sin, neighbours, partly), _turned(k, cos, sin, neighbours, partly)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, neighbours: bool, partly: bool) -> Tensor:
    if x.stride(-1) != 1:
        x = x.contiguous()
    batch, heads, tokens, width = x.shape
    out = torch.empty(batch, tokens, heads, width, dtype=x.dtype)
    head_dim = cos.shape[-1] if partly else width
    places = (t.data_ptr() for t in (out, x, cos, sin))
    table = cos.stride(0) if cos.shape[0] > 1 else 0, cos.stride(1)
    second = head_dim // 2 if cos.shape[-1] == head_dim else 0
    sizes = (
        heads,
        tokens,
        head_dim,
        width - head_dim,
        *x.stride()[:3],
        *table,
        second,
        cos.dtype is torch.bfloat16,
        neighbours,
    )
    run(held.Rotation(part_of(batch * tokens, x), *places, *sizes), threads_for(x.numel()))
    return out.transpose(1, 2)


def greedy(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The first of the highest of each row of logits `[rows, vocabulary]`, int64, and its log-probability, float32; NaN
    where a logit is."""
    logits = logits.contiguous()
    rows, vocabulary = logits.shape
    tokens, logprobs = torch.empty(rows, dtype=torch.long), torch.empty(rows)
    places = (x.data_ptr() for x in (tokens, logprobs, logits))
    run(held.Greedy(part_of(rows, logits), *places, vocabulary), threads_for(logits.numel()))
    return tokens, logprobs


def angles(
    positions: Tensor, frequencies: Tensor, scale: float, twice: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Cosines and sines `[..., width]` of a rotary embedding, times `scale`: of positions `[...]` int64 times
    `frequencies` `[width]`; where `twice`, `[..., 2 * width]`, all of them once more beside them."""
    positions, frequencies = positions.contiguous(), frequencies.float().contiguous()
    width = len(frequencies)
    cos, sin = (torch.empty(*positions.shape, width * (1 + twice), dtype=dtype) for _ in range(2))
    places = (x.data_ptr() for x in (cos, sin, positions, frequencies))
    run(held.Angles(part_of(positions.numel(), cos), *places, width, scale, twice), 1)
    return cos, sin


def laid_out(weight: Tensor) -> Tensor:
    """A weight `[columns, depth]` of a dtype that is computed, depth even, as `product` reads it: a view, or a copy."""
    columns, depth = weight.shape
    panel, side = function("panel_width")(), 2 if weight.dtype is torch.bfloat16 else 1
    weight = torch.nn.functional.pad(weight, (0, 0, 0, -columns % panel))
    return weight.view(-1, panel, depth // side, side).transpose(1, 2)


def pack(weight: Tensor, room: LargePages) -> Tensor:
    """That, in a place of its own."""
    weight = laid_out(weight)
    return room.zeros(weight.shape, weight.dtype).copy_(weight)


def unpack(packed: Tensor, columns: int) -> Tensor:
    """The weight `[columns, depth]` that was packed."""
    panels, depth, panel, side = packed.shape
    return packed.transpose(1, 2).reshape(panels * panel, depth * side)[:columns]


def product(x: Tensor, packed: Tensor, bias: Tensor | None, columns: int) -> Tensor:
    """x `[..., depth]` times a packed weight, plus a bias `[columns]`: `[..., columns]`."""
    return multiply(x, packed, bias, columns, held.Scales(), 0)


def by_heads(x: Tensor, packed: Tensor, columns: int, rest: int = 0) -> Tensor:
    """Of x `[tokens, heads, depth + rest]` the first values of each head times its weight, packed as `[heads, panels,
    ...]`, and the rest as they are: `[tokens, heads, columns + rest]`."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    tokens, heads, width = x.shape
    out = torch.empty(tokens, heads, columns + rest, dtype=x.dtype)
    places = (t.data_ptr() for t in (out, x, packed))
    sizes = heads, columns, width - rest, rest, *x.stride()[:2], *out.stride()[:2]
    run(held.Heads(part_of(tokens, x), *places, *sizes), torch.get_num_threads())
    return out


def to_integers(x: Tensor, outliers: float) -> tuple[Tensor, Tensor]:
    """x `[..., width]` with each row divided by its scale, the highest of it over 127, and rounded; and the scales
    float32 `[rows]`. What is as large as `outliers`, if that is not 0, is not rounded, and no scale looks at it."""
    x = in_rows(x)
    width = x.shape[-1]
    out = torch.empty(x.shape, dtype=x.dtype)
    scales = torch.empty(x.numel() // width)
    places = out.data_ptr(), scales.data_ptr(), x.data_ptr()
    values = held.Integers(part_of(len(scales), x), *places, width, row_stride(x), outliers)
    run(values, threads_for(x.numel()))
    return out, scales


def multiply(
    x: Tensor,
    packed: Tensor,
    bias: Tensor | None,
    columns: int,
    scales: held.Scales,
    coding: int,
    by: Tensor | None = None,
) -> Tensor:
    """As `product`, of a weight that may be codes with `scales`; each row is times `by` float32 `[rows]`."""
    x = in_rows(x)
    if bias is not None and bias.dtype is not x.dtype:
        bias = bias.to(x.dtype)
    out = torch.empty(*x.shape[:-1], columns, dtype=x.dtype)
    places = out.data_ptr(), x.data_ptr(), packed.data_ptr(), None if bias is None else bias.data_ptr()
    depth = x.shape[-1]
    sizes = columns, depth, row_stride(x), columns, 0
    times = None if by is None else by.data_ptr()
    values = held.Product(part_of(x.numel() // depth, x), *places, None, times, scales, *sizes, 0, coding)
    run(values, torch.get_num_threads())
    return out


def threads_for(values: int) -> int:
    """As many as have enough to do."""
    return 1 if values < A_THREAD else min(torch.get_num_threads(), values // A_THREAD + 1)
