"""The GPU's path through the engine, on Triton's interpreter: same tokens as the CPU's.

Triton reads TRITON_INTERPRET when it is first imported, so the checks run in a pytest of their own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


@pytest.mark.timeout(300)
def test_the_engine_on_the_gpus_path_says_what_it_says_on_the_cpus() -> None:
    checks = Path(__file__).with_name("interpreted_engine_checks.py")
    run = subprocess.run(
        # Rows of a tile that hold no token divide 0 by 0 and overflow, and are not stored: NumPy warns, a GPU does not.
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning", str(checks)],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": ""},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
