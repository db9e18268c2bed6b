"""Triton where it is installed; where it is not, kernel modules still import, and a launch says what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

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


class Launch(NamedTuple):
    """A launch of a kernel, which a call makes. `arguments` by name are the kernel's own and Triton's options."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]

    @classmethod
    def of(cls, kernel: Any, grid: tuple[int, ...], values: Sequence[Any], **options: Any) -> Launch:
        """With a value for each of the kernel's parameters, in their order."""
        return cls(kernel, grid, dict(zip(kernel.arg_names, values, strict=True), **options))

    def __call__(self) -> None:
        self.kernel[self.grid](**self.arguments)


def next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


__all__ = ["Launch", "jit", "next_power_of_two", "tl"]
