"""How a product with packed weights is cut for the GPU; what the kernels compute is in `interpreted_awq_checks.py`."""

import pytest
import torch

from engine.kernels.jit import launched
from engine.kernels.offline.meta_weights import awq_weights, empty
from engine.kernels.products.awq_matmul import (
    ADD_BFLOATS,
    ADD_HALVES,
    FUSED_ROWS,
    INPUTS,
    TILINGS,
    WIDE,
    awq_matmul,
    awq_matmul_kernel,
    tiling,
)
from tests.engine.kernels.offline.ptx import run


@pytest.mark.parametrize("group", [16, 32, 48, 64, 96, 128, 192, 256, 11008])
@pytest.mark.parametrize("rows", [1, 9, 17, 33, FUSED_ROWS])
def test_what_is_multiplied_at_once_is_of_one_group_or_one_tile(rows: int, group: int) -> None:
    across = tiling(rows, 4096, group).across
    assert across == 1 or group % (across * INPUTS) == 0


def test_more_rows_get_larger_tiles() -> None:
    assert [tiling(rows, 4096, 128).block_m for rows in (1, 8, 9, 16, 17, 32, 33, 128)] == [
        8,
        8,
        16,
        16,
        32,
        32,
        64,
        64,
    ]
    assert tiling(1, 28_672, 128).block_n > tiling(1, 4096, 128).block_n
    assert list(TILINGS) == sorted(TILINGS)
    assert all(cut.shares in (1, cut.warps) for cut in (*TILINGS.values(), *WIDE.values()))


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 4096, 4096), (16, 14336, 4096), (5, 4096, 1024), (70, 96, 8), (1, 11008, 4096)]
)
def test_shares_cover_all_inputs_and_the_grid_all_outputs(rows: int, inputs: int, outputs: int) -> None:
    x, bias = empty(rows, inputs, dtype=torch.float16), empty(outputs, dtype=torch.float16)
    ((kernel, grid, arguments),) = launched(awq_matmul, x, *awq_weights(inputs, outputs, 32), bias)

    assert kernel is awq_matmul_kernel
    assert arguments["share"] % arguments["ACROSS"] == 0
    shared = arguments["share"] * arguments["SHARES"] * INPUTS
    assert inputs <= shared < inputs + arguments["SHARES"] * arguments["ACROSS"] * INPUTS
    assert grid[0] * arguments["BLOCK_N"] >= outputs
    assert grid[1] * arguments["BLOCK_M"] >= rows


@pytest.mark.parametrize(
    ("dtype", "assembly"), [(torch.float16, ADD_HALVES), (torch.bfloat16, ADD_BFLOATS)], ids=["fp16", "bf16"]
)
def test_the_assembly_makes_steps_of_a_words_codes(dtype: torch.dtype, assembly: str) -> None:
    """The interpreter runs the plain form of it."""
    words = torch.randint(0, 2**32, (100,), generator=torch.Generator().manual_seed(0)).tolist()
    base = 1024 if dtype == torch.float16 else 128

    for zero, word in enumerate(words):
        less = torch.full((2,), -float(base + zero % 16), dtype=dtype).view(torch.int32)
        left = run(assembly.value, {"$4": word, "$5": int(less) & 0xFFFFFFFF})
        for plane in range(4):
            made = torch.tensor([left[plane]], dtype=torch.uint32).view(dtype).tolist()
            assert made == [(word >> 4 * plane + 16 * half & 15) - zero % 16 for half in range(2)]
