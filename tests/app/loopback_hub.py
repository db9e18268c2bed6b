"""A hub on loopback for the window's tests, with a cache of the test's own."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.checkpoints.hub.conftest import FIRST, SECOND, demo_files
from tests.engine.checkpoints.hub.small_hub import Repository, SmallHub


@pytest.fixture(scope="module")
def served() -> Iterator[SmallHub]:
    small, large = demo_files(), demo_files("models/stories-5m")
    with SmallHub(
        Repository("batch/stories", {FIRST: small, SECOND: small}, {"main": SECOND, "v1": FIRST}, downloads=900),
        Repository("batch/stories-5m", {FIRST: large}, {"main": FIRST}, downloads=80_000),
        Repository("batch/gated-stories", {FIRST: small}, {"main": FIRST}, gated="manual", downloads=600),
    ) as hub:
        yield hub


@pytest.fixture
def hub(served: SmallHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallHub]:
    served.reset()
    for name, value in {
        "HF_ENDPOINT": served.address, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0",
        "TRANSFORMERS_OFFLINE": "0", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield served
    for thread in threading.enumerate():
        if "process_request" in thread.name:  # an answer that nobody waits for any more
            thread.join(60)
