"""On a CPU the compiled kernels take the place of what the interpreter proves of Triton's, for every architecture."""

import pytest
import torch

from engine.kernels.cpu.library import native
from engine.models.fusion.fuse import fuse
from tests.engine.fusing_case import ANGLES, FUSED, by_kernel, check_fused, served

pytestmark = pytest.mark.skipif(native().library is None, reason=native().why)


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fused_model_differs_by_rounding_and_can_be_undone(name: str, dtype: torch.dtype) -> None:
    check_fused(name, dtype, more={"angles": 1} if name in ANGLES else {})


def test_float16_is_left_to_torch() -> None:
    assert not by_kernel(fuse(served("llama", torch.float16)))
