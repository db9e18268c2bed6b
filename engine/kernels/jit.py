"""Triton where it is installed; where it is not, kernel modules still import, and a launch says what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from engine.kernels.dependent_launch import launch_options

try:
    import triton.language as tl
    from triton import jit

    constant: Any = tl.constexpr  # a number of a module that its kernels read
except ImportError:
    tl, constant = None, int

    class _Missing:
        def __init__(self, fn: Callable[..., Any]) -> None:
            self.name, self.arg_names = fn.__name__, fn.__code__.co_varnames[: fn.__code__.co_argcount]

        def __getitem__(self, grid: tuple[int, ...]) -> NoReturn:
            raise RuntimeError(f"the GPU kernel {self.name} needs Triton: pip install triton (Linux only)")

    def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
        return _Missing if fn is None else _Missing(fn)


def interpreter_fault(triton: str | None = None, numpy: str | None = None) -> str:
    """Why Triton's interpreter cannot run kernels with these versions, by default those that are installed; "" where
    it can. Triton 3.6 reads a number out of an array of one element, as NumPy allowed up to 2.3; a GPU is as it was."""
    if tl is None:
        return "Triton is not installed: pip install triton (Linux only)"
    triton, numpy = triton or version("triton"), numpy or version("numpy")
    older, newer = (tuple(map(int, each.split(".")[:2])) for each in (triton, numpy))
    if older >= (3, 7) or newer < (2, 4):
        return ""
    return (
        f"the interpreter of Triton {triton} fails with NumPy {numpy}: pip install 'numpy<2.4', or Triton from 3.7 on"
    )


class Launch(NamedTuple):
    """A launch of a kernel. `arguments` by name are the kernel's own and Triton's options."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]


_kept: ContextVar[list[Launch] | None] = ContextVar("kept", default=None)


def launch(kernel: Any, grid: tuple[int, ...], values: Sequence[Any], *, fused: bool = True, **options: Any) -> None:
    """Launches a kernel with a value for each of its parameters, in their order, and Triton's options, on the GPU where
    its tensors are. `fused`: products may be added unrounded; said outright, since Triton's default changes in 3.10."""
    arguments = dict(zip(kernel.arg_names, values, strict=True), enable_fp_fusion=fused, **options)
    kept = _kept.get()
    if kept is not None:
        kept.append(Launch(kernel, grid, arguments))
        return
    device = next(value.device for value in values if isinstance(value, Tensor))
    arguments |= launch_options(device)
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):  # Triton launches on the thread's, where these tensors' addresses mean nothing
            kernel[grid](**arguments)
    else:
        kernel[grid](**arguments)


def strides(x: Tensor) -> list[int]:
    """Of all dimensions but the last; 0 where there is one: its stride says nothing, and must not choose what is
    compiled."""
    return [stride if size > 1 else 0 for size, stride in zip(x.shape[:-1], x.stride())]


def launched(call: Callable[..., object], *values: Any, **options: Any) -> list[Launch]:
    """What a call launches, kept from running: its tensors may be meta ones, so no GPU is needed."""
    launches: list[Launch] = []
    token = _kept.set(launches)
    try:
        call(*values, **options)
    finally:
        _kept.reset(token)
    return launches


def next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


__all__ = ["Launch", "constant", "interpreter_fault", "jit", "launch", "launched", "next_power_of_two", "tl"]
