"""Programmatic dependent launch (CUDA, from sm_90 on): a kernel is set up while the one before it still runs, and waits
within for what that one writes. Captured steps of few tokens are launched so, whose kernels are short and nearly all
ours: on an H100 a decode step of a 0.6B model took 0.85 of its time at one row, and 0.98 to 0.99 at 8 to 256, half of
whose kernels are cuBLAS's, which depend on nothing. With all launches the yardstick took 1.00 and 1.01 of its time.
`BATCHSCOPE_PDL=0` switches it off.

A kernel lets the next one begin only when it has waited itself, so whoever waits for its predecessor waits for all; and
before it waits, all but its predecessor are done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

SWITCH = "BATCHSCOPE_PDL"
LEAST_CAPABILITY = (9, 0)
MOST_TOKENS = 32  # of a captured step: up to here 4-bit products are ours, and take about as long as one row's

try:
    import triton
    import triton.language as tl

    interpreted = triton.knobs.runtime.interpret
except ImportError:
    interpreted = True

if interpreted:

    def await_inputs() -> None:
        """Kernels run one after another."""

    def fetch_ahead(pointers: Any) -> None:
        """Nothing is fetched."""

else:
    # Triton's name of what it compiled, by which it finds it again on disk, leaves out what an extern does: with these
    # lines in it no kernel of an older `await_inputs` is launched.
    SOURCE = tl.constexpr(sha256(Path(__file__).read_bytes()).hexdigest())

    @triton.jit
    def await_inputs():  # type: ignore[no-untyped-def]
        """Begins every kernel, before it reads or writes anything: what comes before on its stream is done. Compiles to
        nothing where the launch is none that depends."""
        _await_inputs(SOURCE)

    @triton.jit
    def fetch_ahead(pointers):  # type: ignore[no-untyped-def]
        """Before its inputs are awaited: the cache lines at `pointers`, of what no kernel writes, as weights, are on
        their way to the GPU's cache while the kernel before is still at work. Nothing where the launch does not depend.
        """
        _fetch_ahead(pointers, SOURCE)

    @tl.core.extern
    def _await_inputs(source: Any, _semantic: Any = None) -> None:
        if _semantic.builder.options.launch_pdl:
            tl.extra.cuda.gdc_wait(_semantic=_semantic)
            tl.extra.cuda.gdc_launch_dependents(_semantic=_semantic)

    @tl.core.extern
    def _fetch_ahead(pointers: Any, source: Any, _semantic: Any = None) -> None:
        if _semantic.builder.options.launch_pdl:
            fetch = "prefetch.global.L2 [$1]; mov.u32 $0, 0;"
            told = {"dtype": tl.int32, "is_pure": False, "pack": 1}
            tl.inline_asm_elementwise(fetch, "=r,l", [pointers], **told, _semantic=_semantic)


_depending = ContextVar("depending", default=False)


@contextmanager
def step_of(tokens: int) -> Iterator[None]:
    """What is launched within belongs to a captured step of so many tokens."""
    token = _depending.set(tokens <= MOST_TOKENS and os.environ.get(SWITCH) != "0")
    try:
        yield
    finally:
        _depending.reset(token)


def depends(device: torch.device) -> bool:
    """Whether what is launched now on a device depends on the launch before it."""
    return _depending.get() and can_depend(device)


def launch_options(device: torch.device) -> dict[str, bool]:
    """What Triton is told of a launch on a device."""
    return {"launch_pdl": True} if depends(device) else {}


@cache
def can_depend(device: torch.device) -> bool:
    if interpreted or device.type != "cuda":
        return False
    return torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY
