"""How a product with bitsandbytes' 4-bit weights is cut for the GPU, and what its assembly does; what the kernel
computes is in `interpreted_four_bits_checks.py`."""

import pytest
import torch

from engine.kernels.jit import launched
from engine.kernels.meta_weights import empty, four_bit_weights
from engine.kernels.products.four_bits import BLOCK_K, FEW_ROWS, Tiling, assembly, four_bit_matmul, table_of, tiling
from tests.engine.kernels.four_bits_case import TABLES
from tests.engine.kernels.ptx import Program, decoded, every_byte_at_every_place


@pytest.mark.parametrize("blocks", [1, 2, 3, 6, 12, 64, 75, 224])
@pytest.mark.parametrize("rows", [1, 16, 17, FEW_ROWS])
def test_blocks_at_a_time_divide_those_of_the_inputs(rows: int, blocks: int) -> None:
    for sm, most in ((90, 4), (89, 2), (0, 2)):
        at_once = tiling(rows, blocks, sm).at_once
        assert blocks % at_once == 0
        assert at_once == most or blocks % (2 * at_once)


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 4096, 4096), (16, 14336, 4096), (5, 4096, 1024), (64, 2880, 100)]
)
def test_parts_cover_all_inputs_and_the_grid_all_outputs(rows: int, inputs: int, outputs: int) -> None:
    x, bias = empty(rows, inputs, dtype=torch.float16), empty(outputs, dtype=torch.float16)
    weights = four_bit_weights(inputs, outputs, torch.float16)
    ((_, (programs, split), arguments),) = launched(four_bit_matmul, x, *weights, bias, processors=132, sm=90)

    assert arguments["part_blocks"] % arguments["AT_ONCE"] == 0
    assert (split - 1) * arguments["part_blocks"] < inputs // BLOCK_K <= split * arguments["part_blocks"]
    assert split == arguments["parts"]
    assert arguments["row_tiles"] * arguments["BLOCK_M"] >= rows
    assert programs // arguments["row_tiles"] * arguments["BLOCK_N"] >= outputs
    assert (arguments["sums"] is None) == (split == 1)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_assembly_makes_the_floats_of_every_byte_at_every_place(dtype: torch.dtype, kind: str) -> None:
    """The interpreter runs the plain form of it."""
    table = table_of(TABLES[kind], dtype, torch.device("cpu"))
    floats = [number & 0xFFFF for number in table.floats.view(torch.int16).tolist()]
    for four in every_byte_at_every_place():
        found = decoded(Program(), table.code, four)
        assert found == [floats[each >> 4] for each in four] + [floats[each & 15] for each in four]


def test_the_assembly_looks_up_any_bits() -> None:
    numbers = torch.randint(0, 1 << 16, (16,), generator=torch.Generator().manual_seed(0)).tolist()
    found = decoded(Program(), assembly(numbers), (0x98, 0xBA, 0xDC, 0xFE))
    assert found == [numbers[code] for code in (0x9, 0xB, 0xD, 0xF, 0x8, 0xA, 0xC, 0xE)]


def test_a_given_tiling_is_launched() -> None:
    tiles, x = Tiling(16, 64, 2, 8, 5, 1), empty(8, 4096, dtype=torch.bfloat16)
    weights = four_bit_weights(4096, 4096, torch.bfloat16)
    (kernel, grid, arguments), *_ = launched(four_bit_matmul, x, *weights, processors=10, sm=90, tiles=tiles)
    names = "BLOCK_M", "BLOCK_N", "AT_ONCE", "num_warps", "num_stages", "STAGES"
    assert [arguments[name] for name in names] == [16, 64, 2, 8, 5, 5]
    assert grid == (64, 1)
