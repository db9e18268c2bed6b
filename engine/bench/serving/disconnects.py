"""A server under thousands of requests whose clients go away at any moment: no block, task, socket, file or row is left
behind, and memory stays flat."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import struct
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil

from engine.config.specs import EngineConfig, ModelSpec
from engine.core.child.process import EngineProcess
from engine.serving import RequestLogSettings, Server, ServingSettings
from engine.serving.request_log import RequestLog
from engine.trace import Step

CLIENTS = 16
PART = 500  # requests between two looks at whether all is given back
WARM = 3_000  # requests after which memory is to stay as it is: the window of records that are kept has filled
GROWTH = 16 << 20  # bytes that either process may still grow by
PATIENCE = 60.0  # seconds until all that was asked is done
LEAVES = ("never", "never", "head", "body", "sent", "first", "later", "reset")
STORY: dict[str, Any] = {"messages": [{"role": "user", "content": "Tell me of a fox and a kite."}]}


class Defect(Exception):
    """Something was left, or an answer was none."""


@dataclass(frozen=True, slots=True)
class Left:
    """What came of so many requests: how many were `answered` to their end, the others' clients went away; `grown`:
    bytes that this process, which serves, and the engine's have grown by since the WARM-th, 0 where there were fewer.
    `defects`: what was left behind, or went wrong, and at which request."""

    asked: int
    answered: int
    seconds: float
    grown: tuple[int, int]
    defects: tuple[tuple[int, str], ...]

    @property
    def failed(self) -> bool:
        return bool(self.defects)

    def text(self) -> str:
        """In lines for people."""
        gone = f"{self.asked - self.answered:,} clients went away, {self.answered:,} were answered"
        begin = f"{self.asked:,} requests in {self.seconds:,.0f} s: {gone}; "
        if not self.defects:
            grown = " and ".join(f"{each / (1 << 20):+.1f} MB" for each in self.grown)
            memory = f", memory {grown} (server, engine) since request {WARM:,}" if any(self.grown) else ""
            return f"{begin}no block, task, socket, file or row is left{memory}"
        return "\n".join([f"{begin}NOT all was given back", *(f"request {n}: {why}" for n, why in self.defects)])


def leave(count: int, seed: int = 0, begin: int = 0, say: Callable[[str], None] = lambda _: None) -> Left:
    """So many requests of one server, from this number on."""
    answered, number, started = 0, begin, time.perf_counter()
    defects: list[tuple[int, str]] = []
    grown = 0, 0
    files, threads = psutil.Process().num_fds(), threading.active_count()
    with tempfile.TemporaryDirectory() as folder:
        asking = Asking(Path(folder))
        try:
            for number in range(begin, begin + count, PART):
                end = min(number + PART, begin + count)
                answered += asyncio.run(asking.part(seed, number, end))
                asking.settle()
                say(f"{end - begin:,} of {count:,} requests: all is given back")
                if end - begin >= WARM and not any(asking.before):
                    asking.before = asking.weigh()
            grown = asking.check()
        except Exception:
            defects.append((number, traceback.format_exc()))
        finally:
            asking.close()
        rows = asking.log.written
        if not defects and rows < answered:
            defects.append((number, f"{rows} rows of {answered} answers"))
    gc.collect()
    for name, left in (
        ("threads", threading.active_count() - threads),
        ("files", psutil.Process().num_fds() - files - 4),  # of the server that forks, once it is there
    ):
        if left > 0:
            defects.append((begin, f"{left} {name} are left"))
    return Left(count, answered, time.perf_counter() - started, grown, tuple(defects))


class Asking:
    """A server with its request log, and what it had when nothing was asked."""

    def __init__(self, folder: Path) -> None:
        config = EngineConfig(max_running=16, token_budget=256, kv_memory=2 << 20, prefix_caching=True)
        self.engine = EngineProcess(ModelSpec("demo-draft"), config, threads=1)
        log = RequestLogSettings(str(folder / "requests.db"), folder / "requests.spool")
        self.server, ready = Server(ServingSettings(port=0, queue=64, request_log=log)), threading.Event()
        run = self.server.run, (self.engine, "demo", lambda _: ready.set())
        self._thread = threading.Thread(target=run[0], args=run[1], name="serving")
        self._thread.start()
        assert ready.wait(20)
        assert self.server._uvicorn is not None
        self.service = self.server._uvicorn._service
        (log_sink,) = self.service.outlet.sinks
        assert isinstance(log_sink, RequestLog)
        self.log = log_sink
        host, _, port = self.server.address.removeprefix("http://").partition(":")
        self._address = host, int(port)
        asyncio.run(self._one(Random(0), "never"))
        self.settle()
        self.handles = self.count()
        self.before: tuple[int, ...] = ()

    async def part(self, seed: int, begin: int, end: int) -> int:
        """These requests, CLIENTS at once; how many were answered to their end."""
        turns = iter(range(begin, end))

        async def client() -> int:
            answered = 0
            for number in turns:
                rng = Random(f"requests/{seed}/{number}")
                answered += await asyncio.wait_for(self._one(rng, rng.choice(LEAVES)), PATIENCE)
            return answered

        return sum(await asyncio.gather(*(client() for _ in range(CLIENTS))))

    async def _one(self, rng: Random, leaves: str) -> bool:
        """One request; whether it was answered to its end, which must be the protocol's."""
        streamed = rng.random() < 0.7
        body = json.dumps(_body(rng) | {"stream": streamed}).encode()
        route = "chat/completions" if b"messages" in body else "completions"
        head = f"POST /v1/{route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            if leaves == "head":
                writer.write(head[: rng.randrange(len(head))])
                return False
            writer.write(head + (body[: rng.randrange(len(body))] if leaves == "body" else body))
            await writer.drain()
            if leaves in ("body", "sent"):
                return False
            status = int((await reader.readline()).split()[1])
            if status not in (200, 429):
                raise Defect(f"status {status} for {body!r}")
            if leaves != "never":
                for _ in range(1 if leaves == "first" else rng.randrange(3, 40)):
                    await reader.readline()
                return False
            return status == 200 and await _read(reader, streamed)
        finally:
            if leaves == "reset":
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.close()

    def settle(self) -> None:
        """Waits until nothing is open, then says whether all was given back."""
        deadline = time.monotonic() + PATIENCE
        while (left := self._left()) and self.engine.alive:
            if time.monotonic() > deadline:
                raise Defect(f"left: {left}")
            time.sleep(0.01)
        if not self.engine.alive:
            raise Defect(self.engine.error)

    def _left(self) -> dict[str, int]:
        service, steps = self.service, [r for r in self.engine.trace.since(-50) if isinstance(r, Step)]
        free = steps[-1].free_blocks + steps[-1].cached_blocks if steps else 0
        loop = service.delivery._loop
        left = {
            "requests": len(self.engine.trace.open),
            "blocks": self.engine.trace.header.blocks - free,
            "places": service.admission.open,
            "readers": len(service.delivery._readers),
            "tasks": len(asyncio.all_tasks(loop)) - 1 if loop is not None else 0,  # uvicorn's own
            "connections": len(self.server._uvicorn.server_state.connections) if self.server._uvicorn else 0,
            "rows": self.log.spool.pending + len(service.outlet._pending),
        }
        return {name: count for name, count in left.items() if count}

    def weigh(self) -> tuple[int, ...]:
        gc.collect()
        return tuple(psutil.Process(pid).memory_info().rss for pid in (None, self.engine.pid))

    def count(self) -> tuple[int, ...]:
        """Files and threads of this process, then of the engine's."""
        both = [psutil.Process(pid) for pid in (None, self.engine.pid)]
        return tuple(n for process in both for n in (process.num_fds(), process.num_threads()))

    def check(self) -> tuple[int, int]:
        """Bytes by which this process and the engine's have grown. Raises Defect."""
        now, handles = self.weigh(), self.count()
        here, there = (after - before if before else 0 for after, before in zip(now, self.before or (0, 0)))
        if max(here, there) > GROWTH:
            raise Defect(f"bytes here and in the engine: {self.before}, then {now}")
        if max(after - before for after, before in zip(handles, self.handles)) > 8:  # threads that wait for the engine
            raise Defect(f"files and threads, here and there: {self.handles}, then {handles}")
        return here, there

    def close(self) -> None:
        self.server.stop()
        self._thread.join(PATIENCE)
        self.engine.close()


def _body(rng: Random) -> dict[str, Any]:
    asked: dict[str, Any] = STORY if rng.random() < 0.5 else {"prompt": "Once there was a fox " * rng.randint(1, 12)}
    asked = asked | {"model": "demo", "max_tokens": rng.choice((1, 2, 8, 40)), "n": rng.choice((1, 1, 1, 2))}
    return asked | {"ignore_eos": rng.random() < 0.5, "temperature": rng.choice((0, 1)), "seed": rng.randrange(100)}


async def _read(reader: asyncio.StreamReader, streamed: bool) -> bool:
    """An answer to its end."""
    length, head = 0, b""
    while (line := await reader.readline()) not in (b"\r\n", b""):
        head += line
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    if not streamed:
        json.loads(await reader.readexactly(length))
        return True
    content = b""
    while (size := int(await reader.readline(), 16)) > 0:
        content += (await reader.readexactly(size + 2))[:-2]
    if not content.endswith(b"data: [DONE]\n\n"):
        raise Defect(f"a stream ends with {content[-200:]!r}")
    return True
