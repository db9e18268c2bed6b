"""Checks of what adapters add on a GPU, which `test_interpreted.py` runs with TRITON_INTERPRET=1: the kernels against
the definition, and whole engines against models with an adapter merged."""

import os

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.kernels.products.adapters import PART, adapt, lay_out
from tests.engine.adapters_case import added

TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("depth", "widths", "rank"), [(72, [40], 3), (PART + 200, [64, 24, 24], 8), (48, [130, 70], 20)], ids=str
)
def test_the_kernels_equal_the_definition(dtype: torch.dtype, depth: int, widths: list[int], rank: int) -> None:
    """More rows than a tile has, of one adapter, of several, of none; parts of the depth; columns of two layers."""
    random = torch.Generator().manual_seed(rank)
    ids = [0, 2, 2, 1, 3, 0, 0, 3, *[0] * 8, *[2] * 16, 1, 0]
    columns = sum(widths)
    drawn = [torch.randn(*size, generator=random) for size in ((len(ids), 2 * depth), (len(ids), columns))]
    down, up = (torch.randn(*s, generator=random) for s in ((3, len(widths) * rank, depth), (3, columns, rank)))
    wide, out, down, up = (x.to(dtype) for x in (*drawn, down / depth**0.5, up))
    x = wide[:, :depth]
    expected = out.double() + added(x, down, up, ids, widths)
    adapt(out, x, lay_out(down, up, widths), torch.tensor(ids))
    assert (out.double() - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max()
    assert torch.equal(out[0], drawn[1][0].to(dtype)), "a row of no adapter is as it was"
