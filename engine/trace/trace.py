"""The growing log of one load and one config."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Protocol

from engine.trace.log import CHUNK, Log, WatchedLog
from engine.trace.presence import Presence
from engine.trace.records import Ended, Header, Record, Step, Submitted
from engine.trace.requests import RequestIndex, RequestView


class Notebook(Protocol):
    """How a notebook shows a trace."""

    def html(self, trace: Trace) -> str: ...
    def to_pandas(self, trace: Trace, what: str) -> Any: ...


class Trace:
    """The append-only log. Appending is safe from any thread; `records` may be read by index while it grows.

    Listeners run on the appending thread: they must be quick and must not append. `origin` is when the first request
    came in, None until then; `end` when the last step or sample was over, 0 until then; `presence` tells when requests
    were there.
    """

    notebook: ClassVar[Notebook | None] = None  # `engine.export` gives it, as soon as it is imported
    known: Mapping[str, Any] = {}  # what readers made of all records, where that was kept; by the readers' names

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records = Log()
        self.origin: float | None = None
        self.end = 0.0
        self.samples = 0
        self.complete = False
        self.presence = Presence()
        self._header: Header | None = None
        self._open: dict[tuple[int, int], None] = {}  # request and sample
        self._lock = threading.Lock()
        self._listeners: list[Callable[[Record], None]] = []
        self._index = RequestIndex()
        self._indexed = 0
        self._index_lock = threading.Lock()
        for record in records:
            self._take(record)

    @classmethod
    def indexed(cls, log: Log, known: Mapping[str, Any]) -> Trace:
        """A run that is over, of which everything is known and no record was read: `engine.trace.index`."""
        trace, whole = cls(), known["trace"]
        trace.records, trace.known, trace.complete = log, known, True
        trace.origin, trace.end, trace.samples = whole["origin"], whole["end"], whole["samples"]
        trace.presence = whole["presence"]
        trace._header, trace._open = whole["header"], dict.fromkeys(whole["open"])
        trace._index, trace._indexed = known["requests"], len(log)
        return trace

    def append(self, record: Record) -> None:
        with self._lock:
            self._take(record)
            for listener in self._listeners:
                listener(record)

    def _take(self, record: Record) -> None:
        self.records.append(record)
        self.presence.feed(record)
        match record:
            case Step():
                self.end = max(self.end, record.ended)
            case Submitted():
                if self.origin is None:
                    self.origin = record.time
                self.samples += record.params.branches
                self._open.update(((record.request, sample), None) for sample in range(record.params.branches))
            case Ended():
                self.end = max(self.end, record.time)
                self._open.pop((record.request, record.branch), None)
            case Header() if self._header is None:
                self._header = record
            case _:
                pass

    def extend(self, records: Sequence[Record]) -> None:
        for record in records:
            self.append(record)

    def listen(self, listener: Callable[[Record], None]) -> None:
        with self._lock:
            self._listeners.append(listener)

    def since(self, position: int) -> list[Record]:
        """The records from `position` on: a reader keeps `position + len(result)` for the next call."""
        return self.records[position:]

    def watched(self, look: Callable[[], None]) -> Trace:
        """The records so far, for long work that may have to end early: `look` is called whenever it reads on, and what
        it raises ends the work."""
        twin = Trace()
        twin.records = WatchedLog(self.records, look)
        twin.origin, twin.end, twin.complete, twin._header = self.origin, self.end, self.complete, self._header
        twin.presence = self.presence
        return twin

    def forget(self, end: int, columns: bool = True) -> None:
        """Lets go of the records before `end`, with their part of the log's `columns`: who copies a trace elsewhere
        need not keep it. The others keep their index; `requests`, `steps` and `duration` are no longer to be had."""
        with self._lock:
            self.records.forget(end, columns)

    @property
    def header(self) -> Header:
        if self._header is None:
            raise ValueError("this trace has no header yet")
        return self._header

    @property
    def open(self) -> list[tuple[int, int]]:
        """Requests and their samples that are not over, in order of submission."""
        with self._lock:
            return list(self._open)

    @property
    def requests(self) -> Mapping[int, RequestView]:
        """Every request so far, by id, brought up to date with the records at the time of the call."""
        with self._index_lock:
            end = len(self.records)
            while self._indexed < end:
                batch = self.records[self._indexed : min(end, self._indexed + CHUNK)]
                for record in batch:
                    self._index.feed(record)
                self._indexed += len(batch)
        return self._index.requests

    @property
    def steps(self) -> list[Step]:
        """All steps, as objects: of a long trace that is much memory."""
        return [record for record in self.records if isinstance(record, Step)]

    @property
    def duration(self) -> float:
        """Seconds from the first submission to the last committed step."""
        ends = self.records.step_ends
        return ends[-1] - (self.origin or 0.0) if ends else 0.0

    def to_pandas(self, what: str = "requests") -> Any:
        """A DataFrame of the requests, the steps or the metrics so far. Raises InvalidInput where pandas is missing."""
        return self._shown_by().to_pandas(self, what)

    def _repr_html_(self) -> str:
        return self._shown_by().html(self)

    def _shown_by(self) -> Notebook:
        """By name, and once a notebook asks: a script may import nothing but `load_trace`, while a trace knows nobody
        that looks at it."""
        if self.notebook is None:
            import_module("engine.export")
        assert self.notebook is not None
        return self.notebook
