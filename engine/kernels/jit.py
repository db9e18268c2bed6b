"""Triton where it is installed; where it is not, kernel modules still import, and a launch says what is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

try:
    import triton.language as tl
    from triton import jit
except ImportError:
    tl = None

    class _Missing:
        def __init__(self, fn: Callable[..., Any]) -> None:
            self.name = fn.__name__

        def __getitem__(self, grid: tuple[int, ...]) -> NoReturn:
            raise RuntimeError(f"the GPU kernel {self.name} needs Triton: pip install triton (Linux only)")

    def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
        return _Missing if fn is None else _Missing(fn)


def next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


__all__ = ["jit", "next_power_of_two", "tl"]
