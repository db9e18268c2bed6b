"""The records of a run's file, read when they are asked for."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import weakref
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, overload

from engine.config.specs import InvalidInput
from engine.trace.bsrun import opened
from engine.trace.column import Array
from engine.trace.log import CHUNK, COLUMNS, Log
from engine.trace.records import VERSION, Older, Record, decode

CACHED = 32  # chunks that stay in memory
_SELECT = "select seq, kind, data from records where seq >= ? and seq < ? order by seq"
Row = tuple[int, str, bytes]


def checksum(rows: Iterable[Row]) -> int:
    """Of the bytes of a chunk's records."""
    total = 0
    for _, kind, data in rows:
        total = zlib.crc32(data, zlib.crc32(kind.encode(), total))
    return total


class FiledLog(Log):
    """A whole run, of which the `columns` are known. `sums` are the checksums of its chunks: where a record or one near
    it is no longer as it was, `changed` is called with words for it, once; by itself it raises InvalidInput. Where it
    does not, records are given as they are now. Raises InvalidInput at one that cannot be read.

    Any thread may read. The file stays open as long as this log is there.
    """

    def __init__(self, path: Path, version: int, columns: Mapping[str, array[Any]], sums: Array) -> None:
        super().__init__()
        for name in COLUMNS:
            setattr(self, name, columns[name])
        self._length = len(self.times)
        self.path, self._sums = path, sums
        self._older = Older(version) if version < VERSION else None
        self.changed: Callable[[str], None] = _refuse
        self._told = False
        self._chunks: OrderedDict[int, list[Row | Record]] = OrderedDict()
        self._reading = threading.Lock()
        stack = contextlib.ExitStack()
        self._db = stack.enter_context(opened(path, any_thread=True))
        self.close = weakref.finalize(self, stack.close)

    @overload
    def __getitem__(self, at: int) -> Record: ...

    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...

    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        if isinstance(at, slice):
            return [self._record(place) for place in range(*at.indices(self._length))]
        place = at + self._length if at < 0 else at
        if not 0 <= place < self._length:
            raise IndexError(f"record {at} of {self._length}")
        return self._record(place)

    def append(self, record: Record) -> None:
        raise TypeError(f"{self.path} is over: nothing can be added")

    def _record(self, place: int) -> Record:
        number, at = divmod(place, CHUNK)
        with self._reading:
            chunk = self._chunks.get(number)
            if chunk is None:
                chunk = self._chunks[number] = self._chunk(number)
                if len(self._chunks) > CACHED:
                    self._chunks.popitem(last=False)
            else:
                self._chunks.move_to_end(number)
            record = chunk[at]
            if isinstance(record, tuple):
                try:
                    record = chunk[at] = decode(record[1], record[2], self._older)
                except ValueError as error:
                    raise InvalidInput(f"{self.path} cannot be read any more: {error}") from error
        return record

    def _chunk(self, number: int) -> list[Row | Record]:
        begin, end = number * CHUNK, min((number + 1) * CHUNK, self._length)
        words = f"{self.path} has changed since it was opened; open it again"
        rows: list[Row] = []
        try:
            rows = self._db.execute(_SELECT, (begin, end)).fetchall()
            same = checksum(rows) == int(self._sums[number])
        except (sqlite3.Error, OSError, AttributeError, TypeError):  # what was text and bytes is something else
            same = False
        whole = [row[0] for row in rows] == list(range(begin, end))
        if not ((same and whole) or self._told):
            self.changed(words)
            self._told = True
        if not whole:
            raise InvalidInput(words)
        return list(rows)


def _refuse(words: str) -> None:
    raise InvalidInput(words)
