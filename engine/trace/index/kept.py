"""The file of an index: signed by who made it, so that a damaged or a strange one is none.

The key is made with the folder and never leaves it. A file is found by what it is about: a run that was renamed keeps
its index, one that was written to has none.
"""

import hashlib
import hmac
import json
import math
import os
import secrets
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from engine.trace.bsrun import beside
from engine.trace.column import Array
from engine.trace.index.frozen import DTYPES, Adapters, Freezer, Kinds, Thawer

SUFFIX = ".bsindex"
MAGIC = b"BSINDEX\1"
DIGEST, LENGTH, ALIGNED = 32, 8, 8  # bytes
LOOKS, LOOK = 64, 4096  # of a run's file: places, and bytes at each
MOST = 4 << 30  # bytes of all indexes; those used longest ago go first


def identity(path: Path) -> str:
    """Of a run's content: its size, and what stands at some places of it; what is still beside it likewise."""
    digest = hashlib.sha256()
    for part in (path, beside(path)):
        if not part.exists():
            continue
        with part.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            digest.update(size.to_bytes(8, "little"))
            for place in range(LOOKS):
                file.seek(max(0, size - LOOK) * place // (LOOKS - 1))
                digest.update(file.read(LOOK))
    return digest.hexdigest()[:40]


def made_by(packages: Iterable[str]) -> str:
    """Of the code that makes and reads indexes: other code may keep other things."""
    digest = hashlib.sha256(sys.version.encode())
    for name in packages:
        place = Path(str(import_module(name).__file__))
        files = sorted(place.parent.rglob("*.py")) if place.stem == "__init__" else [place]
        for file in files or [Path(sys.executable)]:
            digest.update(file.name.encode())
            digest.update(file.read_bytes() if files else str(file.stat().st_mtime_ns).encode())
    return digest.hexdigest()


def key_of(folder: Path) -> bytes:
    """The folder's key; makes both where there is none."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    file = folder / "key"
    if not file.exists():
        half = folder / f"key.{os.getpid()}"
        half.touch(0o600)
        half.write_bytes(secrets.token_bytes(DIGEST))
        try:
            os.link(half, file)  # whoever comes first
        except FileExistsError:
            pass
        finally:
            half.unlink()
    return file.read_bytes()


def write(file: Path, key: bytes, head: dict[str, Any], known: dict[str, Any], kinds: Kinds, adapters: Adapters) -> int:
    """Keeps what is known beside `head`; returns the file's bytes. Raises OSError and TypeError."""
    freezer = Freezer(kinds, adapters)
    tree = freezer.freeze(known)
    table: list[Any] = []
    pieces: list[Any] = []
    at = 0
    for each in freezer.arrays:
        data = np.ascontiguousarray(each)
        table.append([data.dtype.str, list(each.shape), at])
        pieces += [data.reshape(-1).view(np.uint8).data, bytes(-data.nbytes % ALIGNED)]
        at += data.nbytes + -data.nbytes % ALIGNED
    said = json.dumps({**head, "tree": tree, "arrays": table}, separators=(",", ":")).encode()
    said += b" " * (-(len(MAGIC) + DIGEST + LENGTH + len(said)) % ALIGNED)
    pieces = [len(said).to_bytes(LENGTH, "little"), said, *pieces]
    signed = hmac.new(key, MAGIC, "sha256")
    for piece in pieces:
        signed.update(piece)
    half = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        half.touch(0o600)
        with half.open("wb") as out:
            out.writelines([MAGIC, signed.digest(), *pieces])
        half.replace(file)
    finally:
        half.unlink(missing_ok=True)
    return file.stat().st_size


def read(file: Path, key: bytes, head: dict[str, Any], kinds: Kinds, adapters: Adapters) -> dict[str, Any]:
    """What `write` kept beside the same `head`. Raises ValueError at anything else, and OSError."""
    data = np.memmap(file, np.uint8, "c")  # who goes on writing into what is read has pages of its own
    begin = len(MAGIC) + DIGEST
    signed, body = data[:begin].tobytes(), data[begin:]
    digest = hmac.new(key, MAGIC, "sha256")
    digest.update(body.data)
    if not hmac.compare_digest(signed, MAGIC + digest.digest()):
        raise ValueError(f"{file} is damaged, or not of this folder")
    length = int.from_bytes(body[:LENGTH].tobytes(), "little")
    if not 0 < length <= len(body) - LENGTH:
        raise ValueError(f"{file} is cut off")
    said = json.loads(body[LENGTH : LENGTH + length].tobytes())
    if any(said.get(name) != value for name, value in head.items()):
        raise ValueError(f"{file} was made by other code")
    arrays = [_array(body[LENGTH + length :], *entry) for entry in said["arrays"]]
    known = Thawer(kinds, adapters, arrays).thaw(said["tree"])
    if not isinstance(known, dict):
        raise ValueError(f"{file} holds no index")
    return known


def _array(data: Array, code: str, shape: list[int], begin: int) -> Array:
    dtype, count = np.dtype(code), math.prod(shape)
    end = begin + count * dtype.itemsize
    if dtype.kind not in DTYPES or min([begin, *shape]) < 0 or end > len(data):
        raise ValueError(f"an array of {shape} {code} at {begin} of {len(data)} bytes")
    return np.frombuffer(data.data, dtype, count, begin).reshape(shape)


def make_room(folder: Path, most: int = MOST) -> None:
    """Removes the indexes that were used longest ago, until the others have no more bytes than that."""
    found = sorted(((file.stat(), file) for file in folder.glob(f"*{SUFFIX}")), key=lambda each: -each[0].st_mtime_ns)
    total = 0
    for stat, file in found:
        total += stat.st_size
        if total > most:
            file.unlink(missing_ok=True)
