"""Checks of caches of codes, which `test_interpreted.py` runs with TRITON_INTERPRET=1."""

import os

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.kernels.jit import jit, launch, tl
from engine.kernels.kv_codes import reciprocal
from engine.kernels.quantized_kv import scale_values
from tests.engine.kernels.kv_codes_case import KINDS, check, check_placed, check_stored, check_stored_latents
from tests.engine.kernels.paged_case import Shape, random_shape


@pytest.mark.parametrize("codes", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_float32_agrees_with_the_oracle(seed: int, codes: torch.dtype) -> None:
    check(random_shape(seed, torch.float32), seed, codes)


@pytest.mark.parametrize("codes", KINDS)
@pytest.mark.parametrize("seed", range(100, 104))
def test_float16_agrees_with_the_oracle(seed: int, codes: torch.dtype) -> None:
    check(random_shape(seed, torch.float16), seed, codes)


@pytest.mark.parametrize("codes", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_stored_is_torchs_to_the_bit(seed: int, dtype: torch.dtype, codes: torch.dtype) -> None:
    check_stored(seed, dtype, codes)


@pytest.mark.parametrize("codes", KINDS)
def test_codes_of_latents_are_keys_and_values(codes: torch.dtype) -> None:
    check_stored_latents(codes)
    rows = ((1, 40), (0, 12), (20, 35))
    check(Shape(rows, kv_heads=1, group=32, head_dim=96, dtype=torch.float16, latent=True), 5, codes)


@pytest.mark.parametrize("codes", KINDS)
@pytest.mark.parametrize(("head_dim", "norms"), [(64, False), (80, True), (32, True)])
def test_placing_stores_what_storing_what_it_placed_would(head_dim: int, norms: bool, codes: torch.dtype) -> None:
    check_placed(head_dim, norms, codes)


@jit
def reciprocals_kernel(out, scales) -> None:  # type: ignore[no-untyped-def]
    at = tl.arange(0, 256)
    tl.store(out + at, reciprocal(tl.load(scales + at)))


def test_every_scale_is_divided_by_as_torch_divides() -> None:
    out, scales = torch.empty(256), torch.arange(256, dtype=torch.int32)
    launch(reciprocals_kernel, (1,), (out, scales))
    assert torch.equal(out, 1.0 / scale_values(scales))
