"""Windows at a server, clients that say what a test says, and a stretch of network that can be cut."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from engine import SamplingParams
from engine.remote import RemoteEngine, ServerAddress
from engine.remote.frames import PROTOCOL, STATE, unpack
from engine.trace.records import VERSION

GREEDY = SamplingParams(max_tokens=150, temperature=0, ignore_eos=True)


@contextmanager
def watching(url: str, key: str = "", **how: Any) -> Iterator[RemoteEngine]:
    engine = RemoteEngine(ServerAddress(url, key), **how)
    try:
        yield engine
    finally:
        engine.close()


HELLO = {"do": "hello", "protocol": PROTOCOL, "records": VERSION, "client": "c" * 32, "run": "", "position": 0}


@contextmanager
def raw(url: str, key: str = "", **hello: Any) -> Iterator[ClientConnection]:
    """A client that says what the test says, and no more."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    address = f"ws{url.removeprefix('http')}/v1/watch"
    with connect(address, additional_headers=headers, proxy=None, compression=None, max_size=None) as connection:
        connection.send(json.dumps(HELLO | hello))
        yield connection
        with suppress(ConnectionClosed):
            connection.send('{"do": "bye"}')


def heard(connection: ClientConnection, seconds: float = 1.0) -> list[str | bytes]:
    """All that comes in this time."""
    found: list[str | bytes] = []
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        try:
            found.append(connection.recv(left))
        except TimeoutError:
            break
    return found


def heard_until(connection: ClientConnection, enough: Callable[[list[str | bytes]], bool]) -> list[str | bytes]:
    """All that comes until it is. Nothing is taken of it: a server sends on as long as its window for that lasts."""
    found: list[str | bytes] = []
    while not enough(found):
        found.append(connection.recv(30))
    return found


def taken_until(
    connection: ClientConnection, enough: Callable[[list[str | bytes]], bool], said: list[str | bytes]
) -> None:
    """Hears on, from what was `said`, until that is enough, and takes all of it, however much more than the window."""
    while not enough(said):
        said.append(connection.recv(30))
        take(connection, said)


def take(connection: ClientConnection, said: list[str | bytes]) -> None:
    """All that it was sent up to now."""
    connection.send(json.dumps({"do": "took", "bytes": size(said)}))


def frames(said: list[str | bytes]) -> list[bytes]:
    return [one for one in said if isinstance(one, bytes)]


def size(said: list[str | bytes]) -> int:
    return sum(map(len, frames(said)))


def begins(said: list[str | bytes]) -> list[dict[str, Any]]:
    return [json.loads(one) for one in said if isinstance(one, str) and '"begin"' in one]


def tells_how_things_stand(said: list[str | bytes]) -> bool:
    """All of it."""
    told = sum(len(unpack(frame)[1]) for frame in frames(said) if unpack(frame)[0] == STATE)
    return any(begin["state"] == told for begin in begins(said))


def said(connection: ClientConnection) -> dict[str, Any]:
    """The answer to its next call."""
    while True:
        message = connection.recv(10)
        if isinstance(message, str) and "call" in (words := json.loads(message)):
            return dict(words)


class Wire:
    """Forwards bytes both ways until it is cut; who connects again has them forwarded again."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._to = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: object, *given: object) -> None:
        thread = threading.Thread(target=work, args=given, name="wire", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._to)
                except OSError:
                    near.close()
                    continue
                self._ends += near, far
                self._start(self._forward, near, far)
                self._start(self._forward, far, near)

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                sink.sendall(data)
        self._end(source, sink)

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        """All that goes through it, now."""
        ends, self._ends = self._ends, []
        self._end(*ends)

    def close(self) -> None:
        self._end(self._listener)
        self.cut()
        for thread in self._threads:
            thread.join(60)
