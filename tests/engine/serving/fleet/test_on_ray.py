"""Replicas that Ray Serve keeps. Takes half a minute, and Ray: not installed for the tests that every change passes."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="the extra `ray` is not installed")
ROOT = Path(__file__).parents[4]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_replica_of_ray_that_is_killed_is_made_again_and_its_streams_go_on_exactly() -> None:
    order = [sys.executable, "-m", "tests.engine.serving.fleet.on_ray_failover"]
    done = subprocess.run(order, cwd=ROOT, capture_output=True, text=True, timeout=380, check=False)
    assert "two died, and nothing was said otherwise" in done.stdout, done.stderr[-2000:]
