"""Waiting for what is to come true, on a machine of any speed."""

import time
from collections.abc import Callable

PATIENCE = 60.0  # seconds


def until(holds: Callable[[], object]) -> None:
    """Returns once it holds; fails where it still does not after a minute."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)
