"""Messages between rank 0 and another, over a socket of two ends: a letter, a length, and so many bytes."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import traceback
from collections.abc import Iterator
from typing import Any

from engine.config.specs import InvalidInput

HEAD = struct.Struct("<cI")
LONGEST = 1 << 28  # bytes
PLAN, MAKE, CAPTURE, HOST, LEAVE, MEASURE, QUIT, TOLD, ROOM = b"P", b"M", b"C", b"H", b"L", b"R", b"Q", b"T", b"F"


@contextlib.contextmanager
def telling(link: Link) -> Iterator[None]:
    """Around all that a process does which another has started: what it refuses, or fails by, is told there. Where the
    other end is gone, nothing is told, and it ends quietly."""
    try:
        yield
    except (EOFError, ConnectionError):
        pass
    except InvalidInput as error:
        link.tell(TOLD, refused=str(error))
    except BaseException as error:
        traceback.print_exc()
        with contextlib.suppress(ConnectionError):
            link.tell(TOLD, failed=f"{type(error).__name__}: {error}".splitlines()[0][:1000])
        raise


class Link:
    """One end. Raises EOFError where the other is closed."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def send(self, letter: bytes, data: bytes = b"") -> None:
        self.end.sendall(HEAD.pack(letter, len(data)) + data)

    def tell(self, letter: bytes, **values: Any) -> None:
        self.send(letter, json.dumps(values).encode())

    def receive(self) -> tuple[bytes, bytes]:
        letter, length = HEAD.unpack(self._exactly(HEAD.size))
        if length > LONGEST:
            raise EOFError(f"a message of {length} bytes")
        return letter, self._exactly(length)

    def send_descriptor(self, descriptor: int) -> None:
        socket.send_fds(self.end, [b"!"], [descriptor])

    def receive_descriptor(self) -> int:
        told, found, _, _ = socket.recv_fds(self.end, 1, 1)
        if not told or not found:
            raise EOFError("the other end is closed")
        return found[0]

    def _exactly(self, length: int) -> bytes:
        parts, left = [], length
        while left:
            part = self.end.recv(min(left, 1 << 20))
            if not part:
                raise EOFError("the other end is closed")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
