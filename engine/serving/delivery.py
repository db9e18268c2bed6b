"""From the thread on which records arrive to the event loop: one wake a step, however many streams it fed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from engine.core.stream import Delta, Stream
from engine.trace.records import Ended, Notice, Record, Step
from engine.trace.trace import Trace


class News(NamedTuple):
    """What came of one sample since the last look: of the reader's stream of this number; `ended` where that was
    all."""

    stream: int
    sample: int
    deltas: Sequence[Delta]
    ended: Ended | None


class Reader:
    """Reads the streams of one HTTP request, all their samples mixed, until all are over or `leave` is called."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self.streams, self.left = streams, False
        self._at = [0] * len(streams)
        self._over = [0] * len(streams)  # samples whose end was told
        self._open = sum(stream.samples for stream in streams)
        self._told = asyncio.Event()

    def look(self) -> None:
        """Wakes whoever reads where there is something new."""
        if not self._told.is_set():
            for stream, at, over in zip(self.streams, self._at, self._over):
                if len(stream.deltas) > at or len(stream.ended) > over:
                    self._told.set()
                    return

    def leave(self) -> None:
        """Nobody reads any more: the client is gone."""
        self.left = True
        self._told.set()

    async def news(self) -> list[News]:
        """What has come since the last call, as soon as there is something; nothing where all was told, or nobody reads
        any more."""
        while self._open and not self.left:
            self._told.clear()
            news = [one for number in range(len(self.streams)) for one in self._new(number)]
            if news:
                self._open -= sum([one.ended is not None for one in news])
                return news
            await self._told.wait()
        return []

    def _new(self, number: int) -> Iterator[News]:
        stream = self.streams[number]
        ended = list(stream.ended.items())[self._over[number] :]  # first: a sample's deltas are there before its end
        deltas = stream.deltas[self._at[number] :]
        self._at[number] += len(deltas)
        self._over[number] += len(ended)
        if stream.samples == 1:
            if deltas or ended:
                yield News(number, 0, deltas, ended[0][1] if ended else None)
            return
        ends = dict(ended)
        for sample in sorted({*ends, *(delta.sample for delta in deltas)}):
            yield News(number, sample, [d for d in deltas if d.sample == sample], ends.get(sample))


class Delivery:
    """Wakes readers. A listener of the trace, which hears a record after its streams do."""

    def __init__(self, trace: Trace) -> None:
        self._readers: set[Reader] = set()
        self._followed: list[tuple[Stream, Callable[[], None]]] = []
        self._ends = False  # some may be over since the last look
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = False  # a wake is on its way
        trace.listen(self)

    def __call__(self, record: Record) -> None:
        if isinstance(record, (Ended, Notice)):
            self._ends = True
        if self._asked or self._loop is None or not isinstance(record, (Step, Ended, Notice)):
            return
        self._asked = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._asked = False  # before looking: what comes meanwhile wakes again
        for reader in self._readers:
            reader.look()
        if self._ends:
            self._ends = False
            followed, self._followed = self._followed, []
            for stream, over in followed:
                if stream.done:
                    over()
                else:
                    self._followed.append((stream, over))

    def follow(self, stream: Stream, over: Callable[[], None]) -> None:
        """`over` is called once it is, whether or not anybody reads it."""
        self._loop = asyncio.get_running_loop()
        self._followed.append((stream, over))
        self._ends = True
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self._wake)  # it may be over already

    @contextlib.contextmanager
    def reading(self, streams: Sequence[Stream]) -> Iterator[Reader]:
        """A reader of these streams; those that are not over when it is let go are cancelled."""
        self._loop = asyncio.get_running_loop()
        reader = Reader(streams)
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            for stream in streams:
                if not stream.done:
                    stream.cancel()
