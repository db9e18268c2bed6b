"""Which files begin first, what no collection of garbage looks at, and data folders and a hub of the tests' own."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests import own_hub

own_hub.begin()
gc.disable()  # until all is imported: collections are in vain before, and a tenth of the time
with suppress(ImportError):  # a rented machine with a GPU may do without
    from hypothesis import HealthCheck, settings

    # A busy machine makes examples slowly, and no less well.
    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")

NewData = Callable[[Path], Path]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that are marked slow begin first, so that workers side by side end together."""

    def quick(item: pytest.Item) -> bool:
        module = item.getparent(pytest.Module)
        return module is None or module.get_closest_marker("slow") is None

    items.sort(key=quick)


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(scope="session")
def frozen() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def imported(frozen: None) -> None:
    """What is there before a module's tests stays, libraries above all: going through it takes half a second, and
    engines collect garbage whenever they load."""
    gc.collect()
    gc.freeze()


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
