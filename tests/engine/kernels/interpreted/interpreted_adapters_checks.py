"""Checks of what adapters add on a GPU, which `test_interpreted.py` runs with TRITON_INTERPRET=1, against the
definition.

float32 and float16: the interpreter's bfloat16 is wrong (Triton 3.9).
"""

import os

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.kernels.products.adapters import PART, adapt, lay_out
from tests.engine.adapters_case import check_kernels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize(
    "size", [(72, [40], 3), (PART + 200, [64, 24, 24], 8), (48, [130, 70], 20), (40, [64], 150)], ids=str
)
def test_the_kernels_equal_the_definition(dtype: torch.dtype, size: tuple[int, list[int], int]) -> None:
    check_kernels(adapt, lay_out, dtype, "cpu", size)
