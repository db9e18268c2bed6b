"""Rows on this machine's disk until the database has them: a small file that only grows, and is emptied when all of it
was read."""

import fcntl
import json
import os
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.config.checks import InvalidInput

READ = 1 << 20  # bytes that are read at once, where a row has no more
MARK = 9  # characters of a line before its JSON: the sum of its bytes, and a space

Row = dict[str, Any]


class Spool:
    """Of one process: others that would open it are refused. Readable by its owner alone. Raises InvalidInput.

    A row is a line. One that a power failure has cut or damaged is passed by. Rows that were read stay until `advance`
    says that they are elsewhere: after a crash between the two they are read again.
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most = path, most
        try:
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise InvalidInput(f"the request log's spool {path} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise InvalidInput(f"{path} is the spool of a server that runs; name another --log-spool") from error
        os.fchmod(self._file, 0o600)
        self._lock = threading.Lock()
        self._head = 0
        self._size = os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self._size += os.write(self._file, b"\n")  # a row that was cut ends here

    @property
    def pending(self) -> int:
        """Bytes that were not read, or not yet said to be elsewhere."""
        return self._size - self._head

    def append(self, rows: Sequence[Row]) -> int:
        """How many are kept: the first ones, as far as there is room."""
        lines = [_line(row) for row in rows]
        with self._lock:
            kept, size = 0, self._size
            for line in lines:
                if size + len(line) > self.most:
                    break
                kept, size = kept + 1, size + len(line)
            try:
                written = os.write(self._file, b"".join(lines[:kept])) if kept else 0
            except OSError:
                written = 0
            if written < size - self._size:  # the disk is full
                os.ftruncate(self._file, self._size)
                return 0
            self._size = size
            return kept

    def read(self, most: int) -> tuple[list[Row], int]:
        """At most so many rows, oldest first, and the place after them."""
        with self._lock:
            head, size = self._head, self._size
        length = min(READ, size - head)
        while b"\n" not in (block := os.pread(self._file, length, head)) and length < size - head:
            length = min(2 * length, size - head)
        lines = block.split(b"\n")[:-1][:most]
        if not lines:
            return [], size  # somebody else has cut the file
        rows = [row for line in lines if (row := _row(line)) is not None]
        return rows, head + sum(map(len, lines)) + len(lines)

    def advance(self, place: int) -> None:
        """What is before the place is elsewhere."""
        with self._lock:
            self._head = place
            if place == self._size:
                os.ftruncate(self._file, 0)
                self._head = self._size = 0

    def close(self) -> None:
        os.close(self._file)


def _line(row: Row) -> bytes:
    content = json.dumps(row, separators=(",", ":")).encode()
    return b"%08x %b\n" % (zlib.crc32(content), content)


def _row(line: bytes) -> Row | None:
    content = line[MARK:]
    try:
        return json.loads(content) if int(line[:MARK], 16) == zlib.crc32(content) else None
    except ValueError:
        return None
