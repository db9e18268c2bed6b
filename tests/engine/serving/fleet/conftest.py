"""A fleet of two processes for each module, and what one engine says to the same requests."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from engine import EngineConfig, EngineProcess, ModelSpec, SamplingParams, Submission
from engine.core import Completion
from engine.serving.fleet import Fleet, local_fleet
from engine.serving.fleet.replica import Replica
from tests.engine.conftest import nothing_left

CONFIG = EngineConfig(max_running=32, token_budget=512, kv_memory=24 << 20, prefix_caching=True)


def story(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Tell me story {number} about a fox and a kite."}]


def whole(fleet: Fleet) -> bool:
    return len(fleet.living) == fleet.size


def busiest(fleet: Fleet) -> Replica:
    return max(fleet.living, key=lambda replica: replica.open)


def kill(replica: Replica) -> None:
    os.kill(replica.about["process"], signal.SIGKILL)


def said(completions: list[Completion]) -> list[tuple[Any, ...]]:
    return [(c.text, c.token_ids, c.finish_reason) for c in completions]


@pytest.fixture(autouse=True, scope="package")
def nothing_is_left_behind() -> Iterator[None]:
    """Of all these tests together: a fleet makes processes anew while they run."""
    with nothing_left():
        yield


@pytest.fixture(scope="package")
def alone() -> Iterator[EngineProcess]:
    """One engine by itself."""
    with EngineProcess(ModelSpec("demo-draft"), CONFIG, threads=1) as engine:
        yield engine


def undisturbed(alone: EngineProcess, prompts: list[Any], params: list[SamplingParams]) -> list[list[Completion]]:
    """What is said where nothing dies."""
    streams = alone.submit_many([Submission(prompt, each) for prompt, each in zip(prompts, params)])
    return [stream.results(timeout=60) for stream in streams]


@pytest.fixture(scope="package")
def fleet() -> Iterator[Fleet]:
    with local_fleet(ModelSpec("demo-draft"), CONFIG, 2, threads=1) as fleet:
        yield fleet
