"""The Triton kernels agree with the oracle, run by Triton's interpreter, which needs no GPU.

Triton reads TRITON_INTERPRET when it is first imported, and the rest of the suite compiles: so the checks run in a
pytest of their own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

CHECKS = ["checks", "split_checks", "inputs_checks", "awq_checks", "fused_checks", "fusing_checks", "sampling_checks"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CHECKS)
def test_kernels_in_the_interpreter_agree_with_the_oracle(name: str) -> None:
    checks = Path(__file__).with_name(f"interpreted_{name}.py")
    run = subprocess.run(
        # Rows of a tile that hold no token divide 0 by 0 and overflow, and are not stored: NumPy warns, a GPU does not.
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning", str(checks)],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
