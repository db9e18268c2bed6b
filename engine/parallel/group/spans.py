"""What a step and its calls took a rank, by the clock of the device that made them: each lies between two events."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Protocol

from engine.parallel.board import Board


class Event(Protocol):
    """A place in a device's work, as `torch.cuda.Event` has it."""

    def record(self) -> None: ...
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end: Event, /) -> float:
        """Milliseconds."""


class HostEvent:
    """Of work that is done when a call returns."""

    def __init__(self) -> None:
        self.at = 0

    def record(self) -> None:
        self.at = time.monotonic_ns()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """It is there."""

    def elapsed_time(self, end: Event, /) -> float:
        assert isinstance(end, HostEvent)
        return 1e-6 * (end.at - self.at)


@dataclass(slots=True)
class Calls:
    """Events around each call, and the bytes that they sent."""

    events: list[tuple[Event, Event]] = field(default_factory=list)
    sent: int = 0


@dataclass(slots=True, eq=False)
class Step:
    number: int
    begun: Event
    ended: Event
    calls: Calls
    anchor: tuple[Event, int] | None = None
    micro: list[tuple[Event, Event]] = field(default_factory=list)


class Spans:
    """Tells the board of each step once the device is past it: at `settle`, or, `later`, on a thread of its own as soon
    as it is. Of a captured step the calls are kept (`take`) and belong to each replay (`again`), which records their
    events anew: of a step whose events a later replay came to before it was told nothing is."""

    def __init__(self, board: Board, rank: int, event: Callable[[], Event], later: bool = False) -> None:
        self._board, self._rank, self._event = board, rank, event
        self._calls, self._begun, self._number = Calls(), event(), 0
        self._untold: deque[Step] = deque()
        self._lock = threading.Lock()
        self._ended: SimpleQueue[Step | None] | None = SimpleQueue() if later else None
        if self._ended is not None:
            threading.Thread(target=self._tell_each, args=(self._ended,), name="rank-times", daemon=True).start()

    def begin(self, step: int) -> None:
        self._number, self._calls, self._begun = step, Calls(), self._event()
        self._begun.record()

    @contextmanager
    def call(self, sent: int) -> Iterator[None]:
        begun, ended = self._event(), self._event()
        begun.record()
        yield
        ended.record()
        self._calls.events.append((begun, ended))
        self._calls.sent += sent

    def end(self) -> Event:
        """The step's end: a place behind its last call."""
        step = self._step()
        step.ended.record()
        with self._lock:
            self._untold.append(step)
        if self._ended is not None:
            self._ended.put(step)
        elif isinstance(step.ended, HostEvent):
            self.settle(step.number)
        return step.ended

    def _step(self) -> Step:
        return Step(self._number, self._begun, self._event(), self._calls)

    def take(self) -> Calls:
        """The calls since the step's begin, or since they were taken the last time."""
        taken, self._calls = self._calls, Calls()
        return taken

    def again(self, calls: Calls) -> None:
        """The step has these calls too."""
        with self._lock:
            self._untold = deque(step for step in self._untold if step.calls.events[:1] != calls.events[:1])
        self._calls.events += calls.events
        self._calls.sent += calls.sent

    def settle(self, step: int) -> None:
        """Tells of all steps up to this one, whose ends it waits for."""
        while self._untold and self._untold[0].number <= step:
            self._tell(self._untold[0])

    def close(self) -> None:
        """Nothing more is told."""
        if self._ended is not None:
            self._ended.put(None)

    def _tell_each(self, ended: SimpleQueue[Step | None]) -> None:
        while (step := ended.get()) is not None:
            self._tell(step)

    def _tell(self, step: Step) -> None:
        step.ended.synchronize()
        with self._lock:
            if step not in self._untold:
                return
            self._untold.remove(step)
            self._report(step)

    def _report(self, step: Step) -> None:
        each = [begun.elapsed_time(ended) for begun, ended in step.calls.events]
        whole = step.begun.elapsed_time(step.ended)
        self._board.tell(self._rank, step.number, [1e-3 * ms for ms in each], 1e-3 * whole, step.calls.sent)


class MicroSpans(Spans):
    """Of a stage: when it computed each micro-batch, `computing` by `computing`, beside what its calls took; by the
    host's clock, which all ranks have. A device's clock is held against it whenever a step finds the device idle: then
    it comes to the step as soon as that begins."""

    def __init__(self, board: Board, rank: int, event: Callable[[], Event], later: bool = False) -> None:
        super().__init__(board, rank, event, later)
        self._anchor: tuple[Event, int] | None = None
        self._micro: list[tuple[Event, Event]] = []
        self._last: Event | None = None

    def begin(self, step: int) -> None:
        idle = self._anchor is None or self._last is None or self._last.query()
        now = time.monotonic_ns()
        super().begin(step)
        self._micro = []
        if idle:
            self._anchor = self._begun, now

    @contextmanager
    def computing(self) -> Iterator[None]:
        begun, ended = self._event(), self._event()
        begun.record()
        yield
        ended.record()
        self._micro.append((begun, ended))

    def end(self) -> Event:
        self._last = super().end()
        return self._last

    def _step(self) -> Step:
        made = super()._step()
        made.anchor, made.micro = self._anchor, self._micro
        return made

    def _report(self, step: Step) -> None:
        assert step.anchor is not None
        anchor, at = step.anchor

        def when(event: Event) -> int:
            return at + round(1e6 * anchor.elapsed_time(event))

        spans = [(when(begun), when(ended)) for begun, ended in step.micro]
        sending = round(1e6 * sum(begun.elapsed_time(ended) for begun, ended in step.calls.events))
        self._board.tell_stage(self._rank, step.number, spans, sending, when(step.ended), step.calls.sent)
