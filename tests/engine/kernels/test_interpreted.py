"""The Triton kernels agree with the oracle, run by Triton's interpreter, which needs no GPU."""

from pathlib import Path

import pytest

from tests.interpreted import check_interpreted

pytest.importorskip("triton")
pytestmark = pytest.mark.slow


@pytest.mark.timeout(500)
def test_kernels_in_the_interpreter_agree_with_the_oracle() -> None:
    checks = sorted(Path(__file__).parent.glob("interpreted_*_checks.py"))
    assert len(checks) == 8
    check_interpreted(checks)
