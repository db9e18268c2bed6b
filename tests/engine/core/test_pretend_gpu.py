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


HERE = Path(__file__).parent


@pytest.mark.timeout(450)
def test_an_engine_on_a_pretend_gpu_says_what_it_says_on_the_cpu() -> None:
    """Whose work is done as late as it may be; beside what such a GPU does not forgive."""
    engine, architecture = (HERE / f"pretended_{what}_checks.py" for what in ("engine", "architecture"))
    check_on_pretend_gpu([engine, architecture, ROOT / "tests/pretend_gpu/pretended_gpu_checks.py"])


@pytest.mark.timeout(450)
def test_nothing_hangs_on_when_the_gpu_does_its_work() -> None:
    checks = HERE / "pretended_engine_checks.py"
    check_on_pretend_gpu([f"{checks}::test_tokens_are_those_of_the_cpu[chunked]"], pace="7")
