"""Streams and events of a pretend GPU: work waits in its stream until somebody waits for it."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from tests.pretend_gpu.graphs import Graph

SECONDS = 3e-6  # that any work takes, by a stream's own clock
CAPTURED = "CUDA error: operation not permitted when stream is capturing"


class Work(NamedTuple):
    """What a stream does in its turn; `what` says it where it fails."""

    do: Callable[[], object]
    what: str


class Pace:
    """When work is done that nobody waits for: "late" (never), "early" (at once), or whenever a `random.Random` says.
    A GPU may do any of these."""

    def __init__(self, pace: str | random.Random = "late") -> None:
        self.pace = pace

    def ahead(self) -> bool:
        if isinstance(self.pace, random.Random):
            return self.pace.random() < 0.2
        return self.pace == "early"


lock = threading.RLock()
pace = Pace()
_threads = threading.local()


class Stream:
    """Work in its order. Of a device's default stream `default` is true."""

    def __init__(self, device: Any = None, priority: int = 0, default: bool = False, **_: Any) -> None:
        self.device = as_device(device)
        self.default, self.priority, self.cuda_stream = default, priority, id(self)
        self.issued = self.done = 0
        self.clock = 0.0  # seconds that it has worked
        self.graph: Graph | None = None  # that is captured on it
        self._waiting: deque[Work] = deque()
        self._doing = False

    @property
    def device_index(self) -> int:
        return int(self.device.index)

    def put(self, do: Callable[[], object], what: str) -> None:
        with lock:
            if self.graph is not None:
                self.graph.add(Work(do, what))
                return
            self._waiting.append(Work(do, what))
            self.issued += 1
            if pace.ahead():
                self.drain()

    def drain(self, until: int | None = None) -> None:
        """Does all that waits, or the first `until` that were ever issued."""
        with lock:
            until = self.issued if until is None else until
            while self.done < until and self._waiting and not self._doing:
                work = self._waiting.popleft()
                self.done += 1
                self.clock += SECONDS
                self._doing = True
                try:
                    work.do()
                except Exception as error:
                    error.add_note(f"on the pretend GPU: {work.what}")
                    raise
                finally:
                    self._doing = False

    def synchronize(self) -> None:
        refuse_in_capture()
        self.drain()

    def query(self) -> bool:
        return self.done == self.issued

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._before = current_stream(self.device)
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self._before)


class Event:
    """A place in a stream."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any):
        self.timing = enable_timing
        self.stream: Stream | None = None
        self._place, self._time = 0, 0.0

    def record(self, stream: Stream | None = None) -> None:
        self.stream = current_stream() if stream is None else stream
        assert self.stream.graph is None, "an event of a capture says nothing to the host"
        self.stream.put(self._reached, "an event")
        self._place = self.stream.issued

    def _reached(self) -> None:
        assert self.stream is not None
        self._time = self.stream.clock

    def synchronize(self) -> None:
        refuse_in_capture()
        if self.stream is not None:
            self.stream.drain(self._place)

    def wait(self, stream: Stream | None = None) -> None:
        stream = current_stream() if stream is None else stream
        before, place = self.stream, self._place
        if before is not None and before is not stream:
            stream.put(lambda: before.drain(place), "waiting for an event")

    def query(self) -> bool:
        return self.stream is None or self.stream.done >= self._place

    def elapsed_time(self, end: Event) -> float:
        if not (self.timing and end.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self.query() and end.query()):
            raise RuntimeError("CUDA error: device not ready")
        return 1e3 * (end._time - self._time)


_defaults: dict[int, Stream] = {}


def as_device(device: Any = None) -> torch.device:
    if device is None:
        return torch.device("cuda", current_device())
    found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    return torch.device("cuda", current_device()) if found.index is None else found


def current_device() -> int:
    return int(getattr(_threads, "device", 0))


def exchange_device(index: int) -> int:
    before = current_device()
    if index >= 0:
        _threads.device = index
    return before


def default_stream(device: Any = None) -> Stream:
    index = int(as_device(device).index)
    with lock:
        return _defaults.setdefault(index, Stream(torch.device("cuda", index), default=True))


def current_stream(device: Any = None) -> Stream:
    index = int(as_device(device).index)
    found: Stream | None = vars(_threads).setdefault("streams", {}).get(index)
    return default_stream(index) if found is None else found


def set_stream(stream: Stream) -> None:
    exchange_device(stream.device_index)
    vars(_threads).setdefault("streams", {})[stream.device_index] = stream


def refuse_in_capture() -> None:
    """What the host may not ask for while it captures; the capture is spoiled by it."""
    graph = getattr(_threads, "capturing", None)
    if graph is not None:
        graph.spoiled = True
        raise RuntimeError(CAPTURED)


def capturing(graph: Graph | None) -> None:
    _threads.capturing = graph


def capturing_graph() -> Graph | None:
    return getattr(_threads, "capturing", None)


all_streams: list[Stream] = []


def synchronize(device: Any = None) -> None:
    refuse_in_capture()
    index = as_device(device).index
    for stream in [s for s in [*_defaults.values(), *all_streams] if s.device.index == index]:
        stream.drain()


class OtherStream(Stream):
    """One that is made."""

    def __init__(self, device: Any = None, priority: int = 0, **others: Any) -> None:
        super().__init__(device, priority)
        all_streams.append(self)
