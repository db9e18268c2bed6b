"""Records on their way between two machines: the run file's own encoding, many in one binary message. No pickle.

A frame is the position of its first record (8 bytes, little-endian), then deflated: of each record the length of its
kind (1 byte), that of its bytes (4), the kind and the bytes.
"""

import struct
import zlib
from collections.abc import Iterable

from engine.trace.records import Record, decode, encode

PATH = "/v1/watch"
PROTOCOL = 2  # of what both sides say; the records have a version of their own
STATE = (1 << 64) - 1  # in place of a position: what is told of the time before the first position
LARGEST = 64 << 20  # bytes of a frame at most, inflated too
LEVEL = 1  # of zlib: steps shrink to a tenth, in a fifth of the time of level 6

_AT, _RECORD = struct.Struct("<Q"), struct.Struct("<BI")


def pack(at: int, records: Iterable[Record], most: int) -> tuple[bytes, int]:
    """A frame of as many of the records as fit in `most` bytes before they are deflated, and how many: at least one."""
    parts: list[bytes] = []
    size = count = 0
    for record in records:
        kind, data = encode(record)
        name = kind.encode()
        if count and size + len(data) > most:
            break
        parts += (_RECORD.pack(len(name), len(data)), name, data)
        size += len(data)
        count += 1
    return _AT.pack(at) + zlib.compress(b"".join(parts), LEVEL), count


def unpack(frame: bytes) -> tuple[int, list[Record]]:
    """A frame's position and records. Raises ValueError for what `pack` did not write, or is larger than may be."""
    try:
        (at,) = _AT.unpack_from(frame)
        inflater = zlib.decompressobj()
        body = inflater.decompress(memoryview(frame)[_AT.size :], LARGEST)
    except (struct.error, zlib.error) as error:
        raise ValueError(f"a frame that cannot be read: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise ValueError("a frame that is cut off, or larger than may be")
    records, place = list[Record](), 0
    while place < len(body):
        if place + _RECORD.size > len(body):
            raise ValueError("a frame that is cut off")
        named, length = _RECORD.unpack_from(body, place)
        begin = place + _RECORD.size + named
        if begin + length > len(body):
            raise ValueError("a record that is cut off")
        kind = body[begin - named : begin].decode("ascii", "replace")
        records.append(decode(kind, body[begin : begin + length]))
        place = begin + length
    return at, records
