"""The GPU's path through the engine, on Triton's interpreter: same tokens as the CPU's."""

from pathlib import Path

import pytest

from tests.interpreted import check_interpreted

pytest.importorskip("triton")
pytestmark = pytest.mark.slow


@pytest.mark.timeout(450)
def test_the_engine_on_the_gpus_path_says_what_it_says_on_the_cpus() -> None:
    names = [f"interpreted_{what}_checks.py" for what in ("engine", "beam", "rules", "kv", "prompt", "swap", "adapter")]
    check_interpreted([Path(__file__).with_name(name) for name in names])
