"""Clients that read many streams at once: `python -m engine.bench.serving.client`.

For each line on stdin, an `Asked` as JSON, sends all its bodies at one moment and prints a line: a `Heard`. While
streams come, only the bytes and the moments at which they came are kept; what they say is read when the last is over.
So it costs a server that shares its cores as little as a client can, and no server more than another.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, cast

import h11

from engine.compare.remote.asking import Pieces, ServerFailed, event_of, status_words, tokens_of

HOST = "127.0.0.1"
PATIENCE = 900.0  # seconds that all streams may take together
READ = 1 << 16  # bytes of an error


@dataclass(frozen=True, slots=True)
class Asked:
    """Bodies for a route of the server at this port of this machine; each answer is to have so many tokens."""

    port: int
    route: str
    bodies: list[dict[str, Any]]
    tokens: int


@dataclass(slots=True)
class Heard:
    """What came, in seconds: from the first request sent to the last end read; `ttft` and `e2e` of each whole answer;
    `gaps` between pieces of one answer that came at two moments. `failures`: of each other answer, why. `texts` are in
    the order of the bodies, "" where it failed."""

    seconds: float = 0.0
    events: int = 0
    prompt_tokens: int = 0
    tokens: int = 0
    ttft: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    e2e: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class _Stream(asyncio.Protocol):
    """One connection, kept as what came when."""

    def __init__(self, request: bytes, over: asyncio.Future[None]) -> None:
        self.came: list[tuple[float, bytes]] = []
        self._request, self._over = request, over

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self.came.append((time.perf_counter(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._over.done():
            self._over.set_result(None)


async def _ask(asked: Asked) -> Heard:
    loop = asyncio.get_running_loop()
    wires, streams, overs = [], [], []
    for body in asked.bodies:
        wire, data = h11.Connection(h11.CLIENT), json.dumps(body).encode()
        headers = {"Host": f"{HOST}:{asked.port}", "Connection": "close", "Content-Type": "application/json"}
        headers["Content-Length"] = str(len(data))
        parts = (h11.Request(method="POST", target=asked.route, headers=list(headers.items())), h11.Data(data=data))
        over = loop.create_future()
        wires.append(wire)
        overs.append(over)
        streams.append(_Stream(b"".join(wire.send(part) or b"" for part in (*parts, h11.EndOfMessage())), over))
    begun = time.perf_counter()
    opening = (loop.create_connection(lambda one=one: one, HOST, asked.port) for one in streams)  # type: ignore[misc]
    connections = await asyncio.gather(*opening, return_exceptions=True)
    refused = [each for each in connections if isinstance(each, BaseException)]
    waiting = [over for over, each in zip(overs, connections) if not isinstance(each, BaseException)]
    if waiting:
        await asyncio.wait(waiting, timeout=PATIENCE)
    for each in connections:
        if not isinstance(each, BaseException):
            each[0].abort()
    heard = Heard(failures=[f"no connection: {error}" for error in refused])
    for wire, stream, each in zip(wires, streams, connections):
        if not isinstance(each, BaseException):
            _add(heard, wire, stream.came, begun, asked.tokens)
    return heard


def _add(heard: Heard, wire: h11.Connection, came: list[tuple[float, bytes]], begun: float, tokens: int) -> None:
    """One answer, from what came."""
    times: list[float] = []
    said, finish, usage, events, last, pieces = "", None, None, 0, 0.0, Pieces()
    try:
        for when, event in _events(wire, came):
            events += 1
            usage = event.get("usage") or usage
            for _, text, ended in pieces.of(event):
                said, finish, last = said + text, ended or finish, when
                if text and (not times or when > times[-1]):
                    times.append(when)
        given = tokens_of(usage, "completion_tokens")
        if finish is None or given != tokens or not times:
            raise ServerFailed(f"{given} of {tokens} tokens came, and it ended with {finish}")
    except (ServerFailed, h11.RemoteProtocolError) as error:
        heard.failures.append(str(error))
        heard.texts.append("")
        return
    heard.events += events
    heard.tokens += tokens
    heard.prompt_tokens += tokens_of(usage, "prompt_tokens") or 0
    heard.seconds = max(heard.seconds, last - begun)
    heard.ttft.append(times[0] - begun)
    heard.e2e.append(last - begun)
    heard.gaps += [after - before for before, after in pairwise(times)]
    heard.texts.append(said)


def _events(wire: h11.Connection, came: list[tuple[float, bytes]]) -> Iterator[tuple[float, dict[str, Any]]]:
    """An answer's events with their moments. Raises ServerFailed, and h11.RemoteProtocolError for half an answer."""
    status, rest = 0, b""
    for when, data in [*came, (0.0, b"")]:  # the last says that the connection is over
        wire.receive_data(data)
        while True:
            part = wire.next_event()
            if isinstance(part, h11.Response):
                status = part.status_code
            elif isinstance(part, h11.Data) and status != 200:
                rest = (rest + bytes(part.data))[:READ]
            elif isinstance(part, h11.Data):
                *lines, rest = (rest + bytes(part.data)).split(b"\n")
                told = (event_of(line[5:].strip()) for line in lines if line.startswith(b"data:"))
                yield from ((when, event) for event in told if event is not None)
            elif not isinstance(part, h11.InformationalResponse):
                break
        if isinstance(part, h11.EndOfMessage | h11.ConnectionClosed):
            break
    if status != 200:
        raise ServerFailed(status_words(status, rest) if status else "the connection ended without an answer")


if __name__ == "__main__":  # on asyncio's own loop: after uvloop's has run, a pipe gets 64 KB of a longer line
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks ends it
    for line in sys.stdin:
        print(json.dumps(asdict(asyncio.run(_ask(Asked(**json.loads(line)))))), flush=True)
