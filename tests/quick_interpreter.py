"""A plugin for pytest that makes Triton's interpreter quicker where it alone runs.

The language is patched once, not again at each launch and each call of a device function (1.5 ms each), which Triton
does for kernels that compile in between. The type of a block, and what a value says of its type, are made once for all
values of it, not anew for each; two values of one type are not made alike. An integer operation that needs more bits
than it has fails, by one look at its result in 64 bits: Triton's own check is of no effect unless its options say
`debug`, and takes thirty times as long.

Products of tiles are summed in 64 bits: in 32, which order a processor's library takes depends on the tile's shape, and
what two kernels compute alike would differ in its last bits.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

_patch = interpreter._patch_lang
_patched: set[tuple[bool, bool]] = set()
_seen: set[int] = set()  # globals of modules
_kept = SimpleNamespace(restore=lambda: None)


def _patch_once(fn: Any) -> Any:
    if id(fn.__globals__) not in _seen:
        _seen.add(id(fn.__globals__))
        by_name = list(fn.__globals__.values())
        languages = any(v is interpreter.tl for v in by_name), any(v is interpreter.tl.core for v in by_name)
        if languages not in _patched:
            _patched.add(languages)
            _patch(fn)
    return _kept


_of_numpy = cache(interpreter._get_np_dtype)


def _numpy_dtype(dtype: Any) -> Any:
    element = dtype.scalar  # of a block; pointers, which have no hash, are their own
    return np.dtype("uint64") if element.is_ptr() else _of_numpy(element)


_blocks: dict[tuple[int, tuple[int, ...]], Any] = {}  # by their element's type, which each keeps alive
_make_block = core.block_type.__init__


def _block(cls: Any, element_ty: Any, shape: Any) -> Any:
    sizes = getattr(shape, "values", shape)  # of a list, or of a tuple of the language
    key = id(element_ty), tuple([size.value if type(size) is core.constexpr else size for size in sizes])
    if key not in _blocks:
        made = object.__new__(cls)
        _make_block(made, element_ty, shape)
        made.sizes = key[1]
        _blocks[key] = made
    return _blocks[key]


_of_type: dict[int, dict[str, Any]] = {}  # what a tensor says of its type, which is kept alive with it
_make_tensor = core.tensor.__init__


def _tensor(self: Any, handle: Any, type: Any) -> None:
    if id(type) in _of_type:
        self.__dict__.update(_of_type[id(type)])
        self.handle = handle
    else:
        _make_tensor(self, handle, type)
        _of_type[id(type)] = {name: value for name, value in vars(self).items() if name != "handle"}


_made_alike = TritonSemantic.binary_op_type_checking_impl


def _alike(self: Any, lhs: Any, rhs: Any, *given: Any, **named: Any) -> tuple[Any, Any]:
    alike = type(lhs) is type(rhs) is core.tensor and lhs.type is rhs.type and not lhs.dtype.is_ptr()
    if alike and (lhs.dtype.is_int() or lhs.dtype.is_fp32()):  # which stay what they are when they are divided too
        return lhs, rhs
    return _made_alike(self, lhs, rhs, *given, **named)  # type: ignore[no-any-return]


_broadcast = TritonSemantic.broadcast_impl_value


def _of_one_shape(self: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
    if lhs.type.is_block() and rhs.type.is_block() and lhs.type.sizes == rhs.type.sizes:
        return lhs, rhs
    return _broadcast(self, lhs, rhs)  # type: ignore[no-any-return]


_NUMPY = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def _check_overflow(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> None:
    of, name = lhs.dtype, binary_op.__name__
    if of.int_bitwidth < 64:
        wide = _NUMPY[name](lhs.handle.data.astype(np.int64), rhs.handle.data.astype(np.int64))
        fits = of.get_int_min_value() <= wide.min() and wide.max() <= of.get_int_max_value()
        assert fits, f"int{of.int_bitwidth} overflow detected for operation {name}"


_dot = interpreter.InterpreterBuilder.create_dot


def _summed_exactly(self: Any, a: Any, b: Any, d: Any, *given: Any) -> Any:
    if a.data.dtype.kind != "f":  # of what else there is NumPy has no type
        return _dot(self, a, b, d, *given)
    product = np.matmul(a.data, b.data, dtype=np.float64).astype(d.data.dtype)
    return interpreter.TensorHandle(product + d.data, d.dtype.scalar)


interpreter._patch_lang = _patch_once
interpreter.InterpreterBuilder.create_dot = _summed_exactly
interpreter._get_np_dtype = _numpy_dtype
core.block_type.__new__ = staticmethod(_block)  # type: ignore[assignment]
core.block_type.__init__ = lambda *_: None  # type: ignore[misc,assignment]
core.tensor.__init__ = _tensor  # type: ignore[misc]
TritonSemantic.binary_op_type_checking_impl = _alike
TritonSemantic.broadcast_impl_value = _of_one_shape
TritonSemantic.binary_op_sanitize_overflow_impl = _check_overflow
