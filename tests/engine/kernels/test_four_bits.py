"""How a product with bitsandbytes' 4-bit weights is cut for the GPU, and what its assembly does; what the kernel
computes is in `interpreted_four_bits_checks.py`."""

import pytest
import torch

from engine.kernels.four_bits import BLOCK_K, FEW_ROWS, assembly, four_bit_matmul, table_of, tiling
from engine.kernels.jit import launched
from engine.kernels.meta_weights import empty, four_bit_weights
from tests.engine.kernels.four_bits_case import TABLES

BEGIN, END = "{ .reg .b32 ", "; }"


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


def run(assembly: str, packed: int) -> list[int]:
    """What the few instructions of PTX that decode four bytes leave in the registers $0 to $3."""
    names, _, lines = assembly.removeprefix(BEGIN).removesuffix(END).partition("; ")
    held = {"$4": packed, "%ctaid.z": 0}
    for line in lines.split("; "):
        name, _, told = line.partition(" ")
        to, *given = told.split(", ")
        assert to in (*names.split(", "), "$0", "$1", "$2", "$3")
        values = [held[each] if each in held else int(each, 0) for each in given]
        match name:
            case "mov.u32":
                held[to] = values[0]
            case "and.b32":
                held[to] = values[0] & values[1]
            case "xor.b32":
                held[to] = values[0] ^ values[1]
            case "shr.b32":
                held[to] = values[0] >> values[1]
            case "shl.b32":
                held[to] = values[0] << values[1] & 0xFFFFFFFF
            case "prmt.b32":
                eight = (values[1] << 32 | values[0]).to_bytes(8, "little")
                selectors = [values[2] >> 4 * i & 15 for i in range(4)]
                chosen = [eight[each & 7] if each < 8 else (eight[each & 7] >> 7) * 255 for each in selectors]
                held[to] = int.from_bytes(chosen, "little")
            case "lop3.b32":
                assert values[3] == 0xF0 & 0xCC | ~0xF0 & 0xAA  # of a, b and c: a ? b : c
                held[to] = values[0] & values[1] | ~values[0] & values[2]
            case _:
                raise AssertionError(line)
    return [held[f"${register}"] for register in range(4)]


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_assembly_makes_the_floats_of_every_byte_at_every_place(dtype: torch.dtype, kind: str) -> None:
    """The interpreter runs the plain form of it."""
    table = table_of(TABLES[kind], dtype, torch.device("cpu"))
    floats = [number & 0xFFFF for number in table.floats.view(torch.int16).tolist()]
    for byte in range(256):
        for place in range(4):
            four = [(37 * byte + 11 * place + 59 * i) % 256 for i in range(4)]
            four[place] = byte
            made = run(table.code, int.from_bytes(bytes(four), "little"))
            halves = [register >> 16 * i & 0xFFFF for register in made for i in range(2)]
            assert halves == [floats[each >> 4] for each in four] + [floats[each & 15] for each in four]


def test_the_assembly_looks_up_any_bits() -> None:
    numbers = torch.randint(0, 1 << 16, (16,), generator=torch.Generator().manual_seed(0)).tolist()
    made = run(assembly(numbers), 0xFEDCBA98)
    assert made == [numbers[0xB] << 16 | numbers[0x9], numbers[0xF] << 16 | numbers[0xD],
                    numbers[0xA] << 16 | numbers[0x8], numbers[0xE] << 16 | numbers[0xC]]  # fmt: skip
