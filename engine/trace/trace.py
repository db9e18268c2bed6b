"""The growing log of one load and one config."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from engine.trace.records import Header, Record, Step, Submitted
from engine.trace.requests import RequestIndex, RequestView


class Trace:
    """The append-only log. Appending is safe from any thread; `records` may be read by index while it grows.

    Listeners run on the appending thread: they must be quick and must not append.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records: list[Record] = list(records)
        self.complete = False
        self._lock = threading.Lock()
        self._listeners: list[Callable[[Record], None]] = []
        self._index = RequestIndex()
        self._indexed = 0

    def append(self, record: Record) -> None:
        with self._lock:
            self.records.append(record)
            for listener in self._listeners:
                listener(record)

    def extend(self, records: Sequence[Record]) -> None:
        for record in records:
            self.append(record)

    def listen(self, listener: Callable[[Record], None]) -> None:
        with self._lock:
            self._listeners.append(listener)

    def since(self, position: int) -> list[Record]:
        """The records from `position` on: a reader keeps `position + len(result)` for the next call."""
        return self.records[position:]

    @property
    def header(self) -> Header:
        first = self.records[0] if self.records else None
        if not isinstance(first, Header):
            raise ValueError("this trace has no header yet")
        return first

    @property
    def requests(self) -> dict[int, RequestView]:
        """Every request so far, by id, brought up to date with the records at the time of the call."""
        with self._lock:
            for record in self.records[self._indexed :]:
                self._index.feed(record)
            self._indexed = len(self.records)
        return self._index.requests

    @property
    def steps(self) -> list[Step]:
        return [r for r in self.records if isinstance(r, Step)]

    @property
    def duration(self) -> float:
        """Seconds from the first submission to the last committed step."""
        begun = next((r.time for r in self.records if isinstance(r, Submitted)), 0.0)
        for record in reversed(self.records):
            if isinstance(record, Step):
                return record.ended - begun
        return 0.0
