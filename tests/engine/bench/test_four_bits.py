"""The products of 4-bit weights that the GPU bench compares, and the decoder that is a candidate there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.bench.gpu.four_bits import OTHERS
from engine.bench.gpu.four_bits_lookup import (
    TABLE_BYTES,
    UNTOLD,
    beside_tables,
    filling,
    looking_up,
    lookup_table,
    stage_bytes,
)
from engine.kernels.compiled import SHARED_MEMORY
from engine.kernels.jit import interpreter_fault, launched
from engine.kernels.meta_weights import empty, four_bit_weights
from engine.kernels.products.four_bits import FEW_ROWS, Tiling, four_bit_matmul, tiling
from tests.engine.kernels.four_bits_case import TABLES
from tests.engine.kernels.ptx import Program, decoded, every_byte_at_every_place

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("num_warps", [2, 4, 8])
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_lane_finds_the_floats_of_every_byte_at_every_place(
    dtype: torch.dtype, kind: str, num_warps: int
) -> None:
    """The interpreter runs no assembly."""
    table = lookup_table(TABLES[kind], dtype, torch.device("cpu"), num_warps)
    assert (table.code, table.fill) == (looking_up(), filling(num_warps))
    program = Program([entry & 0xFFFFFFFF for entry in table.floats.tolist()])
    for thread in range(32 * num_warps):
        program.run(table.fill, {"$1": 0}, thread)
    assert len(program.shared) * 4 == TABLE_BYTES
    floats = [number & 0xFFFF for number in torch.tensor(TABLES[kind]).to(dtype).view(torch.int16).tolist()]
    for at, four in enumerate(every_byte_at_every_place()):
        found = decoded(program, table.code, four, 5 * at % (32 * num_warps))
        assert found == [floats[each >> 4] for each in four] + [floats[each & 15] for each in four]


@pytest.mark.parametrize("blocks", [1, 2, 64])
@pytest.mark.parametrize("rows", [1, FEW_ROWS])
def test_shared_memory_is_enough_for_the_tables_and_asked_for_where_it_must_be(rows: int, blocks: int) -> None:
    for sm, most in SHARED_MEMORY.items():
        _check_shared_memory(beside_tables(tiling(rows, blocks, sm)), most)


@pytest.mark.parametrize("block_m", [16, 32])
def test_so_it_is_with_other_tilings_where_a_multiprocessor_has_much(block_m: int) -> None:
    for others in OTHERS:
        _check_shared_memory(beside_tables(Tiling(block_m, *others)), SHARED_MEMORY[90])


def _check_shared_memory(tiles: Tiling, most: int) -> None:
    laid_out = (tiles.num_stages - 1) * stage_bytes(tiles)
    assert laid_out > UNTOLD
    assert laid_out + TABLE_BYTES <= most


def test_the_kernel_fills_tables_for_the_candidate_alone() -> None:
    packed, scales, shipped = four_bit_weights(256, 128, torch.float16)
    x, tiles = empty(2, 256, dtype=torch.float16), beside_tables(tiling(2, 4, 90))
    table = lookup_table(TABLES["nf4"], torch.float16, packed.device, tiles.num_warps)
    (lookup,) = launched(four_bit_matmul, x, packed, scales, table, processors=1, sm=90, tiles=tiles)
    (usual,) = launched(four_bit_matmul, x, packed, scales, shipped, processors=1, sm=90)
    assert lookup.arguments["FILL"] == filling(tiles.num_warps)
    assert lookup.arguments["DECODE"] == looking_up()
    assert usual.arguments["FILL"] == ""


PRODUCTS = """
from engine.bench.gpu import four_bits
from engine.bench.gpu.report import Bench
from engine.bench.gpu.stopwatch import CpuStopwatch
four_bits.products(Bench(CpuStopwatch(), rehearsal=True))
four_bits.WITHIN = 0.0
four_bits.products(Bench(CpuStopwatch(), rehearsal=True))
"""


@pytest.mark.slow
def test_a_rehearsal_multiplies_with_weights_of_bitsandbytes_and_says_what_is_wrong() -> None:
    pytest.importorskip("triton")
    pytest.importorskip("bitsandbytes")
    if fault := interpreter_fault():
        pytest.skip(fault)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PRODUCTS]
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    right, wrong = said.split("\nnf4 products")[1:]
    assert right.count("WRONG") == 0
    assert right.count("Tiling(") == 2, "the fastest of each decoder"
    assert "right" in right
    assert wrong.count("is WRONG by 0.0") == 2
    assert wrong.count(": WRONG by 0.0") == 2, "of tilings, which are not among those that are fast"
