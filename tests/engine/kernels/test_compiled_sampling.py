"""The sampling kernels compile for the GPUs they are launched on and spill no registers; no GPU is needed for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.kernels import compiled, sampling

compiled.POINTERS.setdefault(torch.uint8, "*u8")


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def launches(vocabulary: int, dtype: torch.dtype) -> list[tuple[Any, dict[str, Any]]]:
    """The kernels of a step of 64 rows, and their arguments, tensors that hold nothing."""

    def empty(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    made, _, _ = sampling.launches(
        empty(64, vocabulary, dtype=dtype),
        empty(64),
        empty(64),
        empty(257, sampling.WORDS),
        empty(257, vocabulary, dtype=torch.uint8),
        empty(257, dtype=torch.int64),
        limited=True,
    )
    return [(kernel, arguments) for kernel, _, arguments in made]


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.parametrize(
    ("vocabulary", "dtype", "sm"),
    [
        *((151936, BF16, sm) for sm in (80, 89, 90, 100)),
        *((128256, FP32, sm) for sm in (90, 100)),
        *((50257, BF16, sm) for sm in (89, 100)),  # odd: logits are read one by one
        (32000, FP16, 80),
        (2048, BF16, 89),  # a single chunk
        (300_000, BF16, 90),  # so large that groups are wider
    ],
)
def test_sampling_compiles_and_fits_without_spills(vocabulary: int, dtype: torch.dtype, sm: int) -> None:
    for kernel, arguments in launches(vocabulary, dtype):
        usage = compiled.usage(compiled.compile_launch(kernel, arguments, sm))
        assert usage.fits(sm), (kernel.fn.__name__, usage)
