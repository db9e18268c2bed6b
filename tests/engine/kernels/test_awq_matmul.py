"""How a product with packed weights is cut for the GPU; what the kernels compute is in `interpreted_awq_checks.py`."""

import pytest
import torch

from engine.kernels.jit import launched
from engine.kernels.meta_weights import awq_weights, empty
from engine.kernels.products.awq_matmul import (
    FEW_ROWS,
    FUSED_ROWS,
    IN_BFLOATS,
    IN_HALVES,
    LEAST_K,
    SINGLE_ROWS,
    TILINGS,
    awq_matmul,
    awq_matmul_kernel,
    programs_at_once,
    tiling,
)
from engine.kernels.products.split_inputs import MOST_PARTS, add_parts_kernel, parts
from engine.models.quantization.awq_layout import SHIFTS


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
    split = parts(programs, blocks, 2 * 132)
    assert 1 <= split <= blocks
    assert split == 1 or programs * split <= 2 * 132
    assert split == blocks or programs * (split + 1) > (132 if split >= MOST_PARTS else 2 * 132)


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
    assert grid[2] == arguments["parts"]
    assert grid[0] * arguments["BLOCK_M"] >= rows
    assert grid[1] * arguments["BLOCK_W"] * 8 >= outputs
    assert (arguments["sums"] is None) == (grid[2] == 1)
    if grid[2] > 1:
        assert arguments["sums"].shape == (grid[2], rows, outputs)
    if grid[2] == 1 or rows <= SINGLE_ROWS:
        assert len(done) == 1
        assert arguments["bias"] is bias
    else:
        assert done[1].kernel is add_parts_kernel
        assert arguments["bias"] is None
        assert done[1].arguments["bias"] is bias
        assert done[1].arguments["parts"] == grid[2]


def test_few_rows_fill_a_large_multiprocessor_with_three_programs() -> None:
    assert [programs_at_once(rows, 90) for rows in (1, FEW_ROWS, FEW_ROWS + 1, 100)] == [3, 3, 2, 2]
    assert [programs_at_once(1, sm) for sm in (0, 80, 86, 89, 100, 120)] == [2, 3, 2, 2, 3, 2]


def run(assembly: str, first: int, second: int) -> list[int]:
    """What the few instructions of PTX that unpack words leave in the registers $0 to $7."""
    held = {"$8": first, "$9": second}
    for line in assembly.removeprefix("{ .reg .b32 even, odd, moved; ").removesuffix("; }").split("; "):
        name, _, told = line.partition(" ")
        to, *given = told.split(", ")
        values = [held[each] if each in held else int(each, 0) for each in given]
        match name:
            case "prmt.b32":
                both = (values[1] << 32 | values[0]).to_bytes(8, "little")
                held[to] = int.from_bytes((both[values[2] >> 4 * i & 7] for i in range(4)), "little")
            case "shr.b32":
                held[to] = values[0] >> values[1]
            case "lop3.b32":
                assert values[3] == 0xF0 & 0xCC | 0xAA  # of a, b and c: a & b | c
                held[to] = values[0] & values[1] | values[2]
            case _:
                raise AssertionError(line)
    return [held[f"${column}"] for column in range(8)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_assembly_makes_numbers_of_both_words_codes(dtype: torch.dtype) -> None:
    """The interpreter runs the plain form of it."""
    words = torch.randint(0, 2**32, (100, 2), generator=torch.Generator().manual_seed(0)).tolist()
    base, assembly = (1024, IN_HALVES) if dtype == torch.float16 else (128, IN_BFLOATS)
    for first, second in words:
        made = torch.tensor(run(assembly.value, first, second), dtype=torch.int64).to(torch.int32).view(dtype)
        for column, numbers in enumerate(made.view(8, 2).tolist()):
            codes = [word >> SHIFTS[column] & 15 for word in (first, second)]
            times = 16 if dtype == torch.float16 and column // 2 % 2 else 1
            assert numbers == [base + times * code for code in codes]
