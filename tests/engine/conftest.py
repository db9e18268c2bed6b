"""Engines over the demo model and over tiny random models, and a watch on threads and processes left behind."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import resources
from engine import Engine, EngineConfig, InvalidInput, ModelSpec
from tests.children import children
from tests.engine.fixtures import tiny_folder

__all__ = ["tiny_folder"]  # a fixture of another file

torch.set_num_threads(1)

KEPT = (
    "tqdm",
    "grammars",
    "serving",
    "populating",
    "time-limit",
)  # threads that a process keeps, or what several tests share
SMALL = EngineConfig(max_running=16, token_budget=512)


@pytest.fixture(scope="session")
def demo_engine() -> Iterator[Engine]:
    """The demo's draft model, whose step takes a third of the demo's, loaded once. Tests ask for `demo`, which begins
    afresh."""
    with Engine(ModelSpec("demo-draft"), SMALL, threads=1) as engine:
        yield engine


@pytest.fixture(scope="session")
def large_engine() -> Iterator[Engine]:
    """The demo model. Tests ask for `large_demo`, which begins afresh."""
    with Engine(ModelSpec("demo"), SMALL, threads=1) as engine:
        yield engine


def begin_when_idle(engine: Engine, config: EngineConfig) -> None:
    """Stops what still runs and begins a fresh trace."""
    engine.cancel()
    deadline = time.monotonic() + 20
    while True:
        try:
            engine.begin(config)
            return
        except InvalidInput:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


@pytest.fixture
def demo(demo_engine: Engine) -> Iterator[Engine]:
    """An engine with a small model that speaks, idle, with an empty pool and a fresh trace."""
    begin_when_idle(demo_engine, SMALL)
    yield demo_engine
    begin_when_idle(demo_engine, SMALL)


@pytest.fixture
def large_demo(large_engine: Engine) -> Iterator[Engine]:
    """As `demo`, where the draft model drafts for another, or the demo model's own numbers count."""
    begin_when_idle(large_engine, SMALL)
    yield large_engine
    begin_when_idle(large_engine, SMALL)


@pytest.fixture
def demo_copy(tmp_path: Path) -> Path:
    """A copy of the demo model's folder, to be broken by the test."""
    folder = tmp_path / "model"
    shutil.copytree(resources.path("models/stories-5m"), folder)
    return folder


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fails a test that leaves a thread or a child process alive."""
    with nothing_left():
        yield


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fails where what is inside leaves a thread or a child process alive."""
    threads, before = set(threading.enumerate()), children()
    yield
    deadline = time.monotonic() + 20
    while True:
        left = [t for t in threading.enumerate() if t not in threads and not t.name.startswith(KEPT)]
        born = children() - before
        if not left and not born:
            return
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: threads {left}, processes {born}")
        time.sleep(0.02)
