"""The demo model in a process, a server over it for each module, and clients of that."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from openai import OpenAI

from engine import EngineConfig, EngineProcess, ModelSpec
from engine.serving import Server, ServingSettings
from engine.trace import Record

CONFIG = EngineConfig(max_running=8, token_budget=512, kv_memory=8 << 20, prefix_caching=True)


@contextmanager
def serving(engine: EngineProcess, settings: ServingSettings) -> Iterator[Server]:
    """A server that runs on a thread of its own."""
    server, ready = Server(settings), threading.Event()
    thread = threading.Thread(target=server.run, args=(engine, "demo", lambda _: ready.set()), name="serving")
    thread.start()
    try:
        assert ready.wait(20)
        yield server
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


@contextmanager
def calling(engine: EngineProcess, settings: ServingSettings) -> Iterator[httpx2.Client]:
    """A client of a server of its own."""
    with (
        serving(engine, settings) as server,
        httpx2.Client(base_url=server.address, timeout=30, trust_env=False, verify=False) as http,
    ):
        yield http


@pytest.fixture(scope="session")
def engine() -> Iterator[EngineProcess]:
    with EngineProcess(ModelSpec("demo"), CONFIG, threads=1) as engine:
        yield engine


def kept(engine: EngineProcess) -> list[Record]:
    """Of the trace that all these tests write, what their servers have not let go."""
    return engine.trace.since(engine.trace.records.first)


@pytest.fixture(scope="module")
def server(engine: EngineProcess) -> Iterator[Server]:
    """Open to anybody on this machine, for up to 40 samples at once."""
    with serving(engine, ServingSettings(port=0, queue=32)) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.address, timeout=30, trust_env=False) as http:
        yield http
