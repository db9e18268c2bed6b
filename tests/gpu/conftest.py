"""What GPU tests share. Set TRITON_INTERPRET=1 to walk through those of engines on a CPU: a check of the tests."""

import os
from pathlib import Path

import pytest
import torch

from tests.engine.fixtures import tiny_folder

__all__ = ["tiny_folder"]  # a fixture of another file

if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore = [file.name for file in Path(__file__).parent.glob("test_*.py") if file.stem != "test_device"]


# The files whose tests take longest begin first, so that workers side by side end together: most compile for seconds.
LONGEST = ("test_ranks", "test_kernels", "test_engine", "test_quantized", "test_codes", "test_awq")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of whatever versions and driver are on the GPU's machine are shown, and fail nothing."""
    here = Path(__file__).parent
    own = [item for item in items if here in item.path.parents]
    for item in own:
        item.add_marker(pytest.mark.filterwarnings("default"))
    if len(own) == len(items):
        places = {name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))
