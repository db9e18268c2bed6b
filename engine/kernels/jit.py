"""Triton where it is installed; where it is not, kernel modules still import, and a launch says what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

try:
    import triton.language as tl
    from triton import jit
except ImportError:
    tl = None

    class _Missing:
        def __init__(self, fn: Callable[..., Any]) -> None:
            self.name, self.arg_names = fn.__name__, fn.__code__.co_varnames[: fn.__code__.co_argcount]

        def __getitem__(self, grid: tuple[int, ...]) -> NoReturn:
            raise RuntimeError(f"the GPU kernel {self.name} needs Triton: pip install triton (Linux only)")

    def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
        return _Missing if fn is None else _Missing(fn)


def arguments_of(kernel: Any, values: Sequence[Any], options: dict[str, Any]) -> dict[str, Any]:
    """A launch's arguments by name: a value for each of the kernel's parameters, in their order, and its options."""
    return dict(zip(kernel.arg_names, values, strict=True), **options)


def next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


__all__ = ["arguments_of", "jit", "next_power_of_two", "tl"]
