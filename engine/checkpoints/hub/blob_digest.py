"""The hash that names a file of the hub, taken while the file grows."""

from __future__ import annotations

import hashlib
from pathlib import Path


class BlobDigest:
    """The hash that names a blob, as it grows: SHA-256 of large files, git's SHA-1 of others."""

    def __init__(self, blob: str, size: int, begun: Path | None) -> None:
        self._blob, self._size = blob, size
        self.begin()
        if begun is not None:
            with begun.open("rb") as file:
                while chunk := file.read(1 << 20):
                    self.add(chunk)

    def begin(self) -> None:
        self.length = 0
        git = b"blob %d\0" % self._size
        self._hash = hashlib.sha256() if len(self._blob) == 64 else hashlib.sha1(git, usedforsecurity=False)

    def add(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self.length += len(chunk)

    def matches(self) -> bool:
        return self._hash.hexdigest() == self._blob
