"""All that is collected of this folder where there is no CUDA device."""

from importlib import import_module
from pathlib import Path

import pytest
import torch


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device, so the rest of tests/gpu is not collected")
def test_a_device_computes() -> None:
    assert torch.ones(3, device="cuda").sum().item() == 3


def test_what_is_not_collected_still_imports() -> None:
    for file in Path(__file__).parent.glob("test_*.py"):
        import_module(f"tests.gpu.{file.stem}")
