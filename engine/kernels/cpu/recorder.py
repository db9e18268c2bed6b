"""Hears what a forward over some tokens computes, and keeps it as calls of the compiled kernels.

Most of a forward is such calls already. What torch computes between them is translated, where there is a kernel for it;
views and allocations compute nothing; anything else is let pass as long as no call reads what it made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.kernels.cpu.strides import spread
from engine.kernels.cpu.structures import Heads, Lookup, Part, Pointwise, Structure

recording: ContextVar[Recorder | None] = ContextVar("recording", default=None)
aten = torch.ops.aten
ALLOCATIONS = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
COPIES = {aten.contiguous, aten.clone}
SUM, PRODUCT, SCALED, TANH, COPY, SIGMOID, SILU, BY_ROW = range(8)  # of a `Pointwise`


class Unrecordable(Exception):
    """A forward cannot be kept as calls of kernels; the message says why, for a person."""


@dataclass(slots=True)
class Made:
    """Memory that the forward allocated: `bytes` from `begin` on. `by` is the operation of torch that filled it, where
    no kernel of ours does the same."""

    begin: int
    bytes: int
    by: str
    held: Tensor


class Recorder(TorchDispatchMode):
    """While it is entered, this thread's forward is recorded: our kernels compute nothing, what they fill is zeros
    (places in tables are ones that there are), and torch computes as ever. `inputs` are the tensors that differ from
    step to step, of `tokens` tokens; what is computed from others alone, weights say, is computed once and kept."""

    def __init__(self, inputs: Sequence[Tensor], tokens: int) -> None:
        super().__init__()
        self._tokens = tokens
        self.calls: list[Structure] = []
        self.kept: list[Tensor] = []  # constants that the forward made
        self._inputs = {_base(x) for x in inputs}
        self._made: dict[int, Made] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No compiler is here to be told to skip it, and telling it would import it: three seconds of every load."""
        return False

    def __enter__(self) -> Recorder:
        self._token = recording.set(self)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        recording.reset(self._token)

    def called(self, values: Structure) -> None:
        """A kernel was called with these values."""
        self.calls.append(values)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        packet, name = func.overloadpacket, str(func)
        read = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if packet in ALLOCATIONS:
            self._keep(out.zero_(), "")
        elif func is aten._local_scalar_dense.default:
            raise Unrecordable("the model reads a value while it computes")
        elif packet is aten.zeros:
            self.kept.append(out)
        elif packet is aten.copy_ and _plain_rows(args[0]) and self._copies(args[0], args[1:2]):
            pass
        elif func._schema.is_mutable:
            for x in read[:1]:
                self._keep(x, name)
        else:
            known = {_base(x) for x in read}
            varies = any(base in self._made or base in self._inputs for base in known)
            fresh = [x for x in tree_leaves(out) if isinstance(x, Tensor) and _base(x) not in known]
            for x in fresh:
                if read and not varies:
                    self.kept.append(x)
                else:
                    self._keep(x, "" if self._translate(packet, args, kwargs or {}, x) else name)
        return out

    def _keep(self, x: Tensor, by: str) -> None:
        storage = x.untyped_storage()
        self._made[storage.data_ptr()] = Made(storage.data_ptr(), storage.nbytes(), by, x)

    def _translate(self, packet: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Tensor) -> bool:
        """Records a kernel for what torch has computed, where there is one."""
        if packet is aten.cat:
            beside = len(args) > 1 and args[1] in (-1, out.dim() - 1)
            return beside and _plain(out) and self._copies(out, args[0])
        make = TRANSLATIONS.get(packet)
        single = [x for x in args if isinstance(x, Tensor) and not x.dim()]  # its value would be that of this step
        if (
            make is None
            or kwargs.keys() - {"memory_format"}
            or not _plain(out)
            or any(_base(x) in self._made for x in single)
        ):
            return False
        call = make(out, *args)
        if call is not None:
            self.calls.append(call)
        return call is not None or (packet in COPIES and self._copies(out, args[:1]))

    def _copies(self, out: Tensor, parts: Sequence[Tensor]) -> bool:
        """Records that `parts` were copied beside each other, head by head of each token."""
        dims = [i for i, size in enumerate(out.shape[:-1]) if size != 1]
        # Where there are as many heads as tokens: what a token is made of lies together.
        tokens = max((i for i in dims if out.shape[i] == self._tokens), key=parts[0].stride, default=None)
        alike = all(_plain_rows(x) and x.dtype is out.dtype and x.shape[:-1] == out.shape[:-1] for x in (out, *parts))
        if tokens is None or len(dims) > 2 or not alike:
            return False
        heads, at = next((i for i in dims if i != tokens), None), out.data_ptr()
        for x in parts:
            strides = [each.stride(i) if i is not None else 0 for each in (x, out) for i in (tokens, heads)]
            part = Part(self._tokens, 0, 0, out.dtype is torch.bfloat16, 0)
            sizes = out.shape[heads] if heads is not None else 1, 0, 0, x.shape[-1]
            self.calls.append(Heads(part, at, x.data_ptr(), None, *sizes, *strides))
            at += x.shape[-1] * out.itemsize
        return True

    def made(self) -> list[Made]:
        """In the order of their addresses. Raises Unrecordable where a call reads what only torch computes."""
        made = sorted(self._made.values(), key=lambda one: one.begin)
        for call in self.calls:
            for name in call.places()[call.writes :]:
                place = place_of(made, getattr(call, name))
                if place is not None and made[place].by:
                    raise Unrecordable(f"{made[place].by} has no compiled kernel")
        return made


def place_of(made: Sequence[Made], address: int | None) -> int | None:
    """Which of them an address lies in; None for what the forward did not make."""
    at = bisect_right(made, address or 0, key=lambda one: one.begin) - 1
    return at if at >= 0 and (address or 0) < made[at].begin + made[at].bytes else None


def _base(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _plain(x: Tensor) -> bool:
    return x.is_contiguous() and _plain_rows(x)


def _plain_rows(x: Tensor) -> bool:
    return x.dtype in (torch.float32, torch.bfloat16) and x.dim() > 0 and x.stride(-1) == 1


def _pointwise(out: Tensor, a: Tensor, b: Tensor | None, by: float, kind: int) -> Pointwise | None:
    alike = all(x.shape == out.shape and x.dtype is out.dtype for x in (a, b) if x is not None)
    beside = out if b is None else b
    rows, others = spread(a), spread(beside)
    if not alike or rows is None or others is None:
        return None
    if a.is_contiguous():  # its rows are as long as those of the other
        rows = others[0], others[0]
    elif beside.is_contiguous():
        others = rows[0], rows[0]
    if rows[0] != others[0]:
        return None
    part = Part(out.numel() // rows[0], 0, 0, out.dtype is torch.bfloat16, 0)
    places = out.data_ptr(), a.data_ptr(), None if b is None else b.data_ptr()
    return Pointwise(part, *places, *rows, others[1], by, kind)


def _sum(out: Tensor, a: Any, b: Any) -> Pointwise | None:
    return _pointwise(out, a, b, 0.0, SUM) if isinstance(a, Tensor) and isinstance(b, Tensor) else None


def _times(out: Tensor, a: Any, b: Any) -> Pointwise | None:
    if not isinstance(a, Tensor):
        return None
    if isinstance(b, Tensor) and b.dim():
        if a.shape[-1] == 1 < b.shape[-1]:
            a, b = b, a
        by_row = b.shape == (*a.shape[:-1], 1)
        return _by_row(out, a, b) if by_row else _pointwise(out, a, b, 0.0, PRODUCT)
    return _pointwise(out, a, None, float(b), SCALED)


def _by_row(out: Tensor, a: Tensor, b: Tensor) -> Pointwise | None:
    """Each row of a times its one value of b."""
    rows, columns = spread(a), out.shape[-1]
    if rows is None or not b.is_contiguous() or b.dtype is not out.dtype or a.dtype is not out.dtype:
        return None
    if rows[0] != columns or a.shape != out.shape:
        return None
    part = Part(out.numel() // columns, 0, 0, out.dtype is torch.bfloat16, 0)
    return Pointwise(part, out.data_ptr(), a.data_ptr(), b.data_ptr(), *rows, 1, 0.0, BY_ROW)


def _silu(out: Tensor, a: Tensor) -> Pointwise | None:
    return _pointwise(out, a, None, 0.0, SILU)


def _over(out: Tensor, a: Any, b: Any) -> Pointwise | None:
    return _pointwise(out, a, None, 1.0 / b, SCALED) if isinstance(a, Tensor) and isinstance(b, (int, float)) else None


def _tanh(out: Tensor, a: Tensor) -> Pointwise | None:
    return _pointwise(out, a, None, 0.0, TANH)


def _sigmoid(out: Tensor, a: Tensor) -> Pointwise | None:
    return _pointwise(out, a, None, 0.0, SIGMOID)


def _copied(out: Tensor, a: Tensor) -> Pointwise | None:
    return _pointwise(out, a, None, 0.0, COPY)


def _looked_up(out: Tensor, table: Tensor, ids: Tensor, *_: Any) -> Lookup | None:
    if not (table.is_contiguous() and ids.is_contiguous() and ids.dtype is torch.long and table.dtype is out.dtype):
        return None
    part = Part(ids.numel(), 0, 0, out.dtype is torch.bfloat16, 0)
    return Lookup(part, out.data_ptr(), table.data_ptr(), ids.data_ptr(), table.shape[-1])


def _picked(out: Tensor, table: Tensor, at: Sequence[Tensor | None]) -> Lookup | None:
    """Of `[1, tokens, width]`, or `[tokens, width]`, those at some places."""
    *whole, ids = at
    if (
        len(at) != table.dim() - 1
        or ids is None
        or any(x is not None for x in whole)
        or any(n > 1 for n in table.shape[:-2])
    ):
        return None
    return _looked_up(out, table, ids)


TRANSLATIONS: dict[Any, Callable[..., Structure | None]] = {
    aten.add: _sum,
    aten.mul: _times,
    aten.div: _over,
    aten.tanh: _tanh,
    aten.sigmoid: _sigmoid,
    aten.silu: _silu,
    aten.contiguous: _copied,
    aten.clone: _copied,
    aten.embedding: _looked_up,
    aten.index: _picked,
}
