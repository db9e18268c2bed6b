"""Data folders of the tests' own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NewData = Callable[[Path], Path]


@pytest.fixture(scope="session")
def new_data(tmp_path_factory: pytest.TempPathFactory) -> NewData:
    """Makes a data folder that has what any test has measured of this machine: its roof is measured once a run."""
    run = tmp_path_factory.getbasetemp()
    measured = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "measured"
    measured.mkdir(exist_ok=True)

    def made(folder: Path) -> Path:
        folder.mkdir()
        (folder / "cache").symlink_to(measured)
        return folder

    return made


@pytest.fixture(scope="session", autouse=True)
def own_data(tmp_path_factory: pytest.TempPathFactory, new_data: NewData) -> Iterator[None]:
    """What is kept between loads goes to a folder of the tests'."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHSCOPE_DATA", str(new_data(tmp_path_factory.mktemp("own") / "data")))
        yield
