"""Runs checks in a pytest of their own with Triton's interpreter: Triton reads TRITON_INTERPRET when it is first
imported, and the rest of the suite compiles."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from engine.kernels.jit import interpreter_fault

ROOT = Path(__file__).parents[1]
# Without Qt, which is asked about each import once it is there.
PLUGINS = (
    *"-p no:cacheprovider -p no:pytest-qt -p tests.preloaded".split(),
    *"-p tests.quick_interpreter -p tests.sanitizer.plugin".split(),
)
# Rows of a tile that hold no token divide 0 by 0 and overflow, and are not stored: NumPy warns, a GPU does not.
OPTIONS = [*PLUGINS, "-W", "ignore::RuntimeWarning"]


def check_interpreted(files: Iterable[Path | str], *options: str, **environment: str) -> None:
    """Fails with all that it printed where one of the checks fails; skips where the interpreter cannot run."""
    if fault := interpreter_fault():
        pytest.skip(fault)
    given = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": "", **environment}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *OPTIONS, *options, *map(str, files)],
        env={**os.environ, **given},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def check_on_pretend_gpu(files: Iterable[Path | str]) -> None:
    """Likewise with a GPU that is not there: see `tests.pretend_gpu`."""
    check_interpreted(files, "-p", "tests.pretend_gpu.plugin", PRETEND_PACE="late")
