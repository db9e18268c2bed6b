"""Where checks of the GPU's path run: on the card that is here, or on a CPU in Triton's interpreter."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from engine import ModelSpec
from engine.models.loading import LoadedModel, load

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RUNS = torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"


@contextmanager
def the_cpus_own() -> Iterator[str]:
    """What is loaded within takes the CPU's path; the device to ask for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "0")
        yield "cpu"


def loaded(folder: Path, device: str = DEVICE) -> LoadedModel:
    torch.set_num_threads(1)
    return load(ModelSpec(str(folder), dtype="float32", device=device))
