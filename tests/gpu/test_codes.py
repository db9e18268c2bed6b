"""Caches of codes on the GPU that is here: written as torch writes them, to the bit, and read."""

import pytest
import torch

from tests.engine.kernels.kv_codes_case import KINDS, check, check_placed, check_stored
from tests.engine.kernels.paged_case import Shape, random_shape

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])
CODES = pytest.mark.parametrize("codes", KINDS, ids=["int8", "fp8"])


@DTYPES
@CODES
def test_attention_agrees_with_the_oracle(codes: torch.dtype, dtype: torch.dtype) -> None:
    for seed in range(3):
        check(random_shape(seed, dtype, most_rows=9, longest=700), seed, codes, "cuda")
    rows = ((1, 5000), (4, 3000), (1, 1), (100, 2500), (3, 900))  # long contexts are split
    check(Shape(rows, kv_heads=2, group=4, head_dim=128, dtype=dtype), 0, codes, "cuda")


@DTYPES
@CODES
def test_what_is_stored_is_torchs_to_the_bit(codes: torch.dtype, dtype: torch.dtype) -> None:
    for seed in range(20):
        check_stored(seed, dtype, codes, "cuda")


@DTYPES
@CODES
@pytest.mark.parametrize(("head_dim", "norms"), [(64, False), (80, True), (128, True)])
def test_placing_stores_what_storing_what_it_placed_would(
    head_dim: int, norms: bool, codes: torch.dtype, dtype: torch.dtype
) -> None:
    check_placed(head_dim, norms, codes, dtype, "cuda")
