"""Checks of the kernel for bitsandbytes' 4-bit weights that `test_interpreted.py` runs with TRITON_INTERPRET=1, in a
process of their own.

float16 only: the interpreter's bfloat16 is wrong (Triton 3.9).
"""

import os

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.bench.gpu.report import Bench
from engine.bench.gpu.sections import four_bits as bench
from engine.bench.gpu.stopwatch import CpuStopwatch
from engine.kernels.products.four_bits import FEW_ROWS, Tiling, four_bit_matmul
from tests.engine.kernels.four_bits_case import Product, check, make_weights

HALF = torch.float16


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("rows", [*range(1, 18), 32, 33, FEW_ROWS])
def test_every_number_of_rows_agrees_with_the_oracle(rows: int) -> None:
    check(Product(rows, 256, 136, HALF), rows)


@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize(
    ("inputs", "outputs", "block"),
    [(64, 1, 64), (128, 8, 64), (192, 130, 64), (320, 72, 320), (192, 128, 128), (640, 40, 128), (512, 256, 4096)],
)
def test_every_block_and_odd_sizes_are_served(inputs: int, outputs: int, block: int, rows: int) -> None:
    check(Product(rows, inputs, outputs, HALF, block, bias=True), inputs + rows)


def test_any_table_of_sixteen_numbers_is_looked_up() -> None:
    check(Product(3, 128, 64, HALF, kind="fp4"), 0)


@pytest.mark.parametrize("gap", [24, 7])
@pytest.mark.parametrize("rows", [1, 40])
def test_rows_of_x_that_lie_apart_are_read_by_their_stride(rows: int, gap: int) -> None:
    check(Product(rows, 128, 64, HALF, bias=True, gap=gap), rows)


@pytest.mark.parametrize("rows", [2, 12, 40])
def test_narrow_tiles_and_wide_ones_agree_with_the_oracle(rows: int) -> None:
    for cut in (Tiling(16, 16, 4, 4, 4), Tiling(8, 64, 1, 2, 3)):
        check(Product(rows, 704, 136, HALF, bias=True), rows, tiles=cut)


@pytest.mark.parametrize("blocks", [1, 5, 16, 17, 32])
def test_blocks_that_the_warps_do_not_share_evenly_are_all_multiplied_once(blocks: int) -> None:
    check(Product(3, 64 * blocks, 20, HALF), blocks)


@pytest.mark.parametrize("rows", [16, 64])
def test_a_row_has_the_same_bits_whatever_the_rows_beside_it_hold(rows: int) -> None:
    random = torch.Generator().manual_seed(rows)
    weights = make_weights(Product(rows, 256, 64, HALF), random)
    x = torch.randn(rows, 256, generator=random).half()
    other = torch.cat([x[:1], 1000 * torch.randn(rows - 1, 256, generator=random).half()])
    assert torch.equal(four_bit_matmul(x, *weights)[0], four_bit_matmul(other, *weights)[0])


def test_x_of_more_dimensions_keeps_them_and_none_needs_no_launch() -> None:
    weights = make_weights(Product(6, 64, 16, HALF), torch.Generator().manual_seed(0))
    x = torch.randn(2, 3, 64).half()
    out = four_bit_matmul(x, *weights)
    assert out.shape == (2, 3, 16)
    assert torch.equal(out.flatten(0, 1), four_bit_matmul(x.flatten(0, 1), *weights))
    assert four_bit_matmul(x[:0], *weights).shape == (0, 3, 16)


def test_the_bench_multiplies_with_weights_of_bitsandbytes_and_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("bitsandbytes")
    rehearsed = Bench(CpuStopwatch(), rehearsal=True)
    bench.products(rehearsed)
    right = capsys.readouterr().out
    assert right.count("WRONG") == 0
    assert right.count("Tiling(") == 1, "the fastest"
    assert "right" in right
    monkeypatch.setattr(bench, "WITHIN", 0.0)
    bench.products(rehearsed)
    wrong = capsys.readouterr().out
    assert wrong.count(" WRONG by 0.0") >= 1
    assert wrong.count(": WRONG by 0.0") == 1, "of a tiling, which is not among those that are fast"
