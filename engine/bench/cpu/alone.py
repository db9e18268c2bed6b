"""Runs one side at a time, with nothing left of the side before.

Each thread that computes with torch keeps an OpenMP team until it ends, and two teams on the same cores halve each
other's speed. So every side runs on a thread of its own that is over before the next one begins.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def alone(work: Callable[[], T]) -> T:
    """The result of `work`, done on a new thread that ends with it."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(work).result()
