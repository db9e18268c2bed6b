"""Servers to race: our own over the demo model, llama.cpp's, and `transformers serve`."""

from collections.abc import Iterator

import pytest

from engine import EngineConfig, EngineProcess, ModelSpec
from engine.bench.serving.servers import LLAMACPP, TRANSFORMERS, Kind, Room
from engine.bench.serving.servers import serving as started
from engine.compare.remote import Server
from engine.serving import ServingSettings
from tests.engine.serving.conftest import serving

ROOM = Room(streams=8, context=1024, threads=1)


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    config = EngineConfig(max_running=4, token_budget=256, kv_memory=8 << 20)
    with (
        EngineProcess(ModelSpec("demo"), config, threads=1) as engine,
        serving(engine, ServingSettings(port=0, queue=32)) as server,
    ):
        yield Server(server.address)


def other(kind: Kind) -> Iterator[Server]:
    if kind.missing:
        pytest.skip(kind.missing)
    with started(kind, ROOM) as served:
        yield Server(served.url, served.order.model)


@pytest.fixture(scope="module")
def llamacpp() -> Iterator[Server]:
    yield from other(LLAMACPP)


@pytest.fixture(scope="module")
def transformers() -> Iterator[Server]:
    yield from other(TRANSFORMERS)
