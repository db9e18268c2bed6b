"""Memory that nobody has written holds a pattern here: NaN for floats, a large number for integers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

# By bytes of an element. No computation ends in just this NaN; elements of one byte have no room for a pattern.
PATTERNS = {2: 0x7FDE, 4: 0x7FDEADED, 8: 0x7FFEADED7FDEADED}
_PLAIN = {2: 0x7FDD, 4: 0x7FC00000, 8: 0x7FF8000000000000}  # another NaN, whichever float it is of
_UNSIGNED: dict[int, np.dtype[Any]] = {2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}
_LARGE = 0x7E  # each byte of other elements


def patterned(tensor: Tensor) -> Tensor:
    """The tensor itself, all of its storage unwritten. By no operation of torch, which others count."""
    if type(tensor) in (Tensor, Parameter) and tensor.is_cpu and tensor.layout is torch.strided:
        storage, size = tensor.untyped_storage(), tensor.itemsize
        if storage.nbytes() and tensor.dtype is not torch.bool:
            _bits(storage.data_ptr(), storage.nbytes(), size).fill(PATTERNS.get(size, _LARGE))
    return tensor


def _bits(start: int, count: int, itemsize: int) -> np.ndarray[Any, Any]:
    """Elements of so many bytes in all."""
    memory: Any = (ctypes.c_char * count).from_address(start)
    return np.frombuffer(memory, _UNSIGNED.get(itemsize, np.dtype(np.uint8)))


def leave_unspecified(start: int, stop: int, itemsize: int) -> None:
    """Makes NaN that may be loaded of floats in `[start, stop)` that nobody has written."""
    if stop > start and itemsize in PATTERNS:
        bits = _bits(start, stop - start, itemsize)
        bits[bits == PATTERNS[itemsize]] = _PLAIN[itemsize]


def unwritten(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Which of the loaded values nobody has written, None where all are."""
    size = values.itemsize
    if size not in PATTERNS:
        return None
    found = values.view(_UNSIGNED[size]) == PATTERNS[size]
    return found if found.any() else None


def _then_patterned(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def made(*given: Any, **named: Any) -> Tensor:
        return patterned(make(*given, **named))

    return made


def begin() -> None:
    """From now on torch's memory that is not set holds the pattern."""
    for name in ("empty", "empty_like", "empty_strided"):
        setattr(torch, name, _then_patterned(getattr(torch, name)))
    Tensor.new_empty = _then_patterned(Tensor.new_empty)  # type: ignore[method-assign]
