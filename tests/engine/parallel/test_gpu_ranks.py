"""A model that is split over GPUs, where there is none: on Triton's interpreter, over gloo."""

from pathlib import Path

import pytest

from tests.interpreted import check_interpreted

pytest.importorskip("triton")
pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
def test_ranks_with_the_gpus_runner_say_what_one_device_says() -> None:
    check_interpreted([Path(__file__).with_name("interpreted_gpu_rank_checks.py")])
