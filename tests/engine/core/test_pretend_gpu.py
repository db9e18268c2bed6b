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


def test_the_pretend_gpu_forgives_nothing_that_a_gpu_does_not() -> None:
    check_on_pretend_gpu([ROOT / "tests/pretend_gpu/pretended_gpu_checks.py"])


@pytest.mark.timeout(450)
@pytest.mark.parametrize("pace", ["late", "7"])
def test_an_engine_on_a_pretend_gpu_says_what_it_says_on_the_cpu(pace: str) -> None:
    check_on_pretend_gpu([Path(__file__).with_name("pretended_engine_checks.py")], pace)
