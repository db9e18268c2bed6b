"""A plugin for pytest: kernels that Triton's interpreter runs are checked, and a fault of theirs fails its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tests.sanitizer.interpreter  # noqa: F401
from tests.sanitizer.launch import KEPT


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Fails a test in whose course a kernel had a fault, whatever became of the error."""
    KEPT.clear()
    yield
    if KEPT:
        pytest.fail("\n".join(KEPT), pytrace=False)
