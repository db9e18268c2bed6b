"""How a product with bitsandbytes' 4-bit weights is cut for the GPU, and what its assembly does; what the kernel
computes is in `interpreted_four_bits_checks.py`."""

from typing import Any

import pytest
import torch

from engine.kernels.jit import launched
from engine.kernels.offline.meta_weights import empty, four_bit_weights
from engine.kernels.products.four_bits import (
    BFLOAT_STEPS,
    BLOCK_K,
    FEW_ROWS,
    HALF_STEPS,
    TILINGS,
    WIDE,
    Tiling,
    assembly,
    four_bit_matmul,
    table_of,
    tiling,
)
from tests.engine.kernels.four_bits_case import TABLES
from tests.engine.kernels.offline.ptx import run


def test_few_rows_of_few_outputs_are_cut_smaller() -> None:
    assert tiling(1, WIDE - 1).block_n < tiling(1, WIDE).block_n
    assert tiling(FEW_ROWS, WIDE - 1) == tiling(FEW_ROWS, WIDE)
    assert list(TILINGS) == sorted(TILINGS)


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 4096, 4096), (16, 14336, 4096), (5, 4096, 1024), (64, 2880, 100)]
)
def test_the_grid_covers_all_rows_and_outputs_and_uneven_blocks_are_masked(
    rows: int, inputs: int, outputs: int
) -> None:
    x, bias = empty(rows, inputs, dtype=torch.float16), empty(outputs, dtype=torch.float16)
    ((_, (programs,), arguments),) = launched(four_bit_matmul, x, *four_bit_weights(inputs, outputs, x.dtype), bias)
    assert arguments["row_tiles"] * arguments["BLOCK_M"] >= rows
    assert programs // arguments["row_tiles"] * arguments["BLOCK_N"] >= outputs
    assert arguments["EVEN"] == (inputs // BLOCK_K % (arguments["WARPS"] * arguments["AT_ONCE"]) == 0)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_assembly_makes_the_floats_of_every_code_at_every_place(dtype: torch.dtype, kind: str) -> None:
    """The interpreter runs the plain form of it."""
    table = table_of(TABLES[kind], dtype, torch.device("cpu"))
    words = {f"${5 + i}": word & 0xFFFFFFFF for i, word in enumerate(table[0].tolist())}
    floats = [number & 0xFFFF for number in torch.tensor(TABLES[kind]).to(dtype).view(torch.int16).tolist()]
    for code in range(256):
        codes = [(code + 37 * place) % 16 for place in range(7)] + [code // 16]
        for upper_first in (True, False):
            packed = sum(each << 4 * (place ^ upper_first) for place, each in enumerate(codes))
            left = run(assembly(upper_first), {"$4": packed, **words})
            assert [pair >> 16 * odd & 0xFFFF for pair in left for odd in range(2)] == [floats[each] for each in codes]


@pytest.mark.parametrize(
    ("dtype", "assembly"), [(torch.float16, HALF_STEPS), (torch.bfloat16, BFLOAT_STEPS)], ids=["fp16", "bf16"]
)
def test_the_assembly_makes_steps_of_every_code_at_every_place_less_the_zero(dtype: torch.dtype, assembly: Any) -> None:
    base = 1024 if dtype == torch.float16 else 128
    for zero in range(16):
        less = int(torch.full((2,), -float(base + zero), dtype=dtype).view(torch.int32)) & 0xFFFFFFFF
        codes = [(5 * place + zero) % 16 for place in range(8)]
        left = run(assembly.value, {"$4": sum(each << 4 * place for place, each in enumerate(codes)), "$5": less})
        made = torch.tensor(left, dtype=torch.uint32).view(dtype).tolist()
        assert made == [code - zero for code in codes]


def test_a_given_tiling_is_launched() -> None:
    tiles, x = Tiling(16, 64, 2, 8, 5), empty(8, 4096, dtype=torch.bfloat16)
    weights = four_bit_weights(4096, 4096, torch.bfloat16)
    ((_, grid, arguments),) = launched(four_bit_matmul, x, *weights, tiles=tiles)
    names = "BLOCK_M", "BLOCK_N", "AT_ONCE", "num_warps", "num_stages", "STAGES"
    assert [arguments[name] for name in names] == [16, 64, 2, 8, 5, 5]
    assert grid == (64,)
