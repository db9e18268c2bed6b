"""The demo model behind servers, ours and others', each a process of its own with the same room and threads."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import psutil

import resources
from engine.bench.serving import llamacpp
from engine.bench.serving.client import HOST
from engine.bench.serving.clients import ROOT, unbroken

START = 300.0  # seconds that a server may take to answer, on a machine that does other things too
CLOSING = 10.0  # seconds that it may take to end when it is told to
GLANCE = 0.05


@dataclass(frozen=True, slots=True)
class Room:
    """What a server is to have room for: so many streams at once, of so many tokens with their prompts. `threads` that
    compute."""

    streams: int
    context: int
    threads: int


@dataclass(frozen=True, slots=True)
class Order:
    """How a server is started, but for its port, which is given last. `model`: what requests call its model; `more`:
    what its requests have beside all others'."""

    command: tuple[str, ...]
    model: str
    settings: str
    more: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kind:
    """A server's program. `needs`: modules it is made of; `brings`: what installs them; `order` may write files into a
    folder."""

    name: str
    needs: tuple[str, ...]
    brings: str
    order: Callable[[Room, Path], Order]

    @property
    def missing(self) -> str:
        """In words, which package brings what is not there; "" where all is."""
        lacks = [name for name in self.needs if find_spec(name) is None]
        return f"{self.name}: {', '.join(lacks)} missing; pip install {self.brings}" if lacks else ""


@dataclass(frozen=True, slots=True)
class Served:
    """A server that answers at this port of this machine."""

    name: str
    order: Order
    port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


def _ours(room: Room, folder: Path) -> Order:
    """Without keys of whoever starts it."""
    command = [sys.executable, "-m", "app", "serve", "--model", "demo", "--dtype", "float32"]
    command += ["--max-running", str(room.streams), "--threads", str(room.threads), "--keys", str(folder / "none")]
    return Order((*command, "--port"), "demo", _words(room), environment={"BATCHSCOPE_API_KEYS": ""})


def _transformers(room: Room, folder: Path) -> Order:
    """Batched continuously: without, it answers one request after the other. A cache of the default size would take
    most of the machine's memory."""
    model = str(resources.path("models/stories-5m"))
    page, most = 256, 512
    pages = room.streams * -(-room.context // page)
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", model, "--continuous-batching"]
    command += ["--cb-num-blocks", str(int(pages * 1.5) + 4), "--cb-max-batch-tokens", str(most)]
    command += ["--device", "cpu", "--dtype", "float32", "--host", HOST, "--log-level", "error"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": str(room.threads)}
    words = f"{version('transformers')}, --continuous-batching, --cb-max-batch-tokens {most}, {_words(room)}"
    return Order((*command, "--port"), model, words, environment=offline)


def _llamacpp(room: Room, folder: Path) -> Order:
    import xllamacpp

    file = llamacpp.convert(folder / "stories.gguf")
    context = -(-room.context // 256) * 256
    command = (sys.executable, llamacpp.__file__, str(file), str(room.threads), str(room.streams), str(context))
    able = [each.split(" = ")[0].split(":")[-1].strip() for each in xllamacpp.get_system_info().split("|")]
    built = next((name for name in ("AVX512", "AVX2", "AVX") if name in able), "neither AVX nor more")
    words = f"xllamacpp {version('xllamacpp')}, built for {built}, {_words(room)}, K and V in float16"
    return Order(command, "stories", words, {"cache_prompt": False})


def _words(room: Room) -> str:
    return "float32, " + ("1 thread that computes" if room.threads == 1 else f"{room.threads} threads that compute")


NEEDED = "starlette", "uvicorn", "uvloop", "httptools", "pydantic", "jwt", "prometheus_client", "websockets"
OURS = Kind("Batchscope", NEEDED, "'batchscope[serve]'", _ours)
TRANSFORMERS = Kind(
    "transformers serve", ("fastapi", "uvicorn", "openai", "rich"), "'transformers[serving]'", _transformers
)
LLAMACPP = Kind("llama.cpp", ("xllamacpp", "gguf"), "xllamacpp gguf", _llamacpp)
KINDS = (OURS, TRANSFORMERS, LLAMACPP)


@contextmanager
def serving(kind: Kind, room: Room) -> Iterator[Served]:
    """A server as long as a block takes; it and all that it started are gone after that. Raises RuntimeError where it
    does not begin, with its last words."""
    with tempfile.TemporaryDirectory() as place, socket.socket() as free:
        order = kind.order(room, Path(place))
        free.bind((HOST, 0))
        port = free.getsockname()[1]
        free.close()
        log, process = Path(place) / "log", None
        try:
            with log.open("w") as said, unbroken():
                process = subprocess.Popen(
                    [*order.command, str(port)],
                    cwd=ROOT,
                    env={**os.environ, **order.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                )
            served = Served(kind.name, order, port)
            _wait(served, process, log)
            yield served
        finally:
            if process is not None:
                _end(process)


def _wait(served: Served, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START
    with httpx2.Client(trust_env=False, timeout=CLOSING) as http:
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(httpx2.HTTPError):
                if http.get(f"{served.url}/health").status_code == 200:
                    return
            time.sleep(GLANCE)
    words = log.read_text(errors="replace").strip().splitlines()
    how = "ended" if process.poll() is not None else f"did not answer within {START:.0f} s"
    raise RuntimeError(f"{served.name} {how}: {words[-1] if words else 'it said nothing'}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """It is asked to, and killed where it does not, with whatever it leaves."""
    try:
        mine = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        mine = []
    try:
        process.terminate()
        process.wait(CLOSING)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()
        for child in mine:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(mine, CLOSING)
