"""The Triton kernels agree with the oracle, run by Triton's interpreter, which needs no GPU."""

from pathlib import Path

import pytest

from engine.kernels.jit import interpreter_fault
from tests.interpreted import check_interpreted

pytest.importorskip("triton")
pytestmark = pytest.mark.slow


@pytest.mark.timeout(500)
def test_kernels_in_the_interpreter_agree_with_the_oracle() -> None:
    checks = sorted(Path(__file__).parent.glob("interpreted_*_checks.py"))
    assert len(checks) == 20
    check_interpreted(checks)


@pytest.mark.parametrize("triton", ["3.6.0", "3.5.1", "3.7.1", "3.9.0"])
@pytest.mark.parametrize("numpy", ["2.3.5", "2.4.0", "2.5.1"])
def test_an_interpreter_that_numpy_left_behind_is_told_with_the_remedy(triton: str, numpy: str) -> None:
    fault = interpreter_fault(triton, numpy)
    assert bool(fault) == (triton < "3.7" and numpy > "2.4")
    if fault:
        assert f"Triton {triton} fails with NumPy {numpy}: pip install 'numpy<2.4'" in fault
