"""A plugin for pytest: all tests of the process find two pretend GPUs, before any is imported.

PRETEND_PACE is "late" (work is done when the host waits for it), "early" (at once), or the seed of what is in between.
"""

import os
import random
import tempfile
from contextlib import ExitStack

import pytest

import tests.quick_interpreter  # noqa: F401

_entered = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    import torch

    from tests.pretend_gpu.cuda import pretend_gpus

    torch.set_num_threads(1)
    os.environ["BATCHSCOPE_DATA"] = _entered.enter_context(tempfile.TemporaryDirectory())  # its roof is no machine's
    pace = os.environ.get("PRETEND_PACE", "late")
    _entered.enter_context(pretend_gpus(count=2, pace=random.Random(int(pace)) if pace.isdigit() else pace))


def pytest_unconfigure(config: pytest.Config) -> None:
    _entered.close()
