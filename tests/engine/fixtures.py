"""Fixtures that the engine's tests share with those that need a GPU: they need no more than the engine itself."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.tiny_models import TINY_MODELS, save_tiny_model


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
