"""How a product with packed weights is cut for the GPU; what the kernels compute is in `interpreted_awq_checks.py`."""

import pytest
import torch

from engine.kernels.awq_matmul import (
    FUSED_ROWS,
    LEAST_K,
    TILINGS,
    add_parts_kernel,
    awq_matmul,
    awq_matmul_kernel,
    parts,
    tiling,
)
from engine.kernels.compiled import awq_weights, empty
from engine.kernels.jit import launched


@pytest.mark.parametrize("group", [16, 32, 48, 64, 96, 128, 256, 11008])
@pytest.mark.parametrize("rows", [1, 16, 17, 32, 33, FUSED_ROWS])
def test_a_tile_never_holds_inputs_of_two_groups(rows: int, group: int) -> None:
    tiles = tiling(rows, group)
    assert group % tiles.block_k == 0
    assert tiles.block_k >= LEAST_K


def test_more_rows_get_larger_tiles() -> None:
    assert [tiling(rows, 128).block_m for rows in (1, 16, 17, 32, 33, 128)] == [16, 16, 32, 32, 64, 64]
    assert list(TILINGS) == sorted(TILINGS)


@pytest.mark.parametrize("programs", [1, 4, 16, 56, 264, 501])
@pytest.mark.parametrize("blocks", [1, 2, 32, 112])
def test_inputs_are_split_until_the_gpu_is_full_and_no_further(programs: int, blocks: int) -> None:
    split = parts(programs, blocks, processors=132)
    assert 1 <= split <= blocks
    assert split == 1 or programs * split <= 2 * 132
    assert split == blocks or programs * (split + 1) > 2 * 132


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 4096, 4096), (16, 14336, 4096), (5, 4096, 1024), (70, 96, 8)]
)
def test_parts_cover_all_inputs_and_the_grid_all_outputs(rows: int, inputs: int, outputs: int) -> None:
    x, bias = empty(rows, inputs, dtype=torch.float16), empty(outputs, dtype=torch.float16)
    done = launched(awq_matmul, x, *awq_weights(inputs, outputs, 32), bias, processors=132)

    kernel, grid, arguments = done[0]
    assert kernel is awq_matmul_kernel
    assert arguments["part_inputs"] % arguments["BLOCK_K"] == 0
    assert (grid[2] - 1) * arguments["part_inputs"] < inputs <= grid[2] * arguments["part_inputs"]
    assert grid[0] * arguments["BLOCK_M"] >= rows
    assert grid[1] * arguments["BLOCK_W"] * 8 >= outputs
    if grid[2] == 1:
        assert len(done) == 1
        assert arguments["bias"] is bias
    else:
        assert done[1].kernel is add_parts_kernel
        assert arguments["bias"] is None
        assert done[1].arguments["bias"] is bias
        assert arguments["out"].shape == (grid[2], rows, outputs)
        assert done[1].arguments["PARTS"] == grid[2]
