"""A hub on loopback for the window's tests, with a cache of the test's own."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import own_hub
from tests.engine.checkpoints.hub.conftest import FIRST, SECOND, demo_files
from tests.engine.checkpoints.hub.small_hub import Repository, SmallHub


@pytest.fixture
def no_hub(tmp_path: Path) -> None:
    """An empty cache, and nobody at the hub's address."""
    (tmp_path / "hf").mkdir()
    own_hub.keep_in(tmp_path / "hf")


@pytest.fixture
def hub(no_hub: None) -> Iterator[SmallHub]:
    small, large = demo_files(), demo_files("models/stories-5m")
    with SmallHub(
        Repository("batch/stories", {FIRST: small, SECOND: small}, {"main": SECOND, "v1": FIRST}, downloads=900),
        Repository("batch/stories-5m", {FIRST: large}, {"main": FIRST}, downloads=80_000),
        Repository("batch/gated-stories", {FIRST: small}, {"main": FIRST}, gated="manual", downloads=600),
        port=own_hub.PORT,
    ) as served:
        yield served
    for thread in threading.enumerate():
        if "process_request" in thread.name:  # an answer that nobody waits for any more
            thread.join(60)
