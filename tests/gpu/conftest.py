"""What GPU tests share. Set TRITON_INTERPRET=1 to walk through those of engines on a CPU: a check of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.tiny_models import TINY_MODELS, save_tiny_model


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of whatever versions and driver are on the GPU's machine are shown, and fail nothing."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session", autouse=True)
def own_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the engine keeps between loads goes to a folder of the tests'."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHSCOPE_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny random model, made when it is first asked for by its type's name."""
    root = tmp_path_factory.mktemp("tiny")

    def folder(name: str) -> Path:
        path = root / name
        if not path.exists():
            save_tiny_model(TINY_MODELS[name], path)
        return path

    return folder
