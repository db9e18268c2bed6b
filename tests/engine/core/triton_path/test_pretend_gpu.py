"""The engine on a GPU that is not there: its own tensors, streams that do nothing unasked, graphs that are captured."""

import shutil
from pathlib import Path

import pytest

from tests.interpreted import ROOT, check_on_pretend_gpu

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("c++") is None, reason="a few lines of C++ are compiled: apt-get install g++"),
]

ENGINE = Path(__file__).parents[2]
CHECKS = (
    ENGINE / "core/triton_path/pretended_census_checks.py",
    ENGINE / "core/triton_path/pretended_engine_checks.py",
    ENGINE / "core/triton_path/pretended_architecture_checks.py",
    ENGINE / "runner/pretended_sampler_checks.py",
    ROOT / "tests/pretend_gpu/pretended_gpu_checks.py",
)


@pytest.mark.timeout(450)
def test_an_engine_on_a_pretend_gpu_says_what_it_says_on_the_cpu() -> None:
    """Whose work is done as late as it may be; beside what such a GPU does not forgive."""
    check_on_pretend_gpu(CHECKS)
