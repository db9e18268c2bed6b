"""Servers to race: our own over the demo model, and llama.cpp's."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from engine import EngineConfig, EngineProcess, ModelSpec
from engine.compare.remote import Server
from engine.serving import ServingSettings
from tests.engine.compare.remote import llama
from tests.engine.serving.conftest import serving


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    config = EngineConfig(max_running=4, token_budget=256, kv_memory=8 << 20)
    with (
        EngineProcess(ModelSpec("demo"), config, threads=1) as engine,
        serving(engine, ServingSettings(port=0, queue=32)) as server,
    ):
        yield Server(server.address)


@pytest.fixture(scope="module")
def llamacpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    model = llama.convert(tmp_path_factory.mktemp("gguf") / "stories.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(Path(llama.__file__)), str(model), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url, until = f"http://127.0.0.1:{port}", time.monotonic() + 20
        while not _up(url):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        yield Server(url)
    finally:
        process.kill()
        process.wait()


def _up(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health", trust_env=False, timeout=2).status_code == 200
    except httpx2.HTTPError:
        return False
