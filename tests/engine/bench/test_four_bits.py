"""The products of 4-bit weights that the GPU bench compares."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.kernels.jit import interpreter_fault

ROOT = Path(__file__).parents[3]
PRODUCTS = """
from engine.bench.gpu.sections import four_bits
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
    assert right.count("Tiling(") == 1, "the fastest"
    assert "right" in right
    assert wrong.count(" WRONG by 0.0") >= 1
    assert wrong.count(": WRONG by 0.0") == 1, "of a tiling, which is not among those that are fast"
