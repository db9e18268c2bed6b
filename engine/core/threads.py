"""The threads of an engine. They know it only while they do something for it: one that nobody has any more ends them.

They end before their interpreter does: one that it ends under takes the process with it, by a signal and after all was
done.
"""

import atexit
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from engine.core import garbage
from engine.core.inbox import Ask, Inbox
from engine.core.machine import Gauge
from engine.core.machine.nvml import Card

TELEMETRY_INTERVAL = 0.5  # seconds
PATIENCE = 10.0  # seconds that each thread may take to end
_running: dict[threading.Thread, Callable[[], object]] = {}

Turn = tuple[bool, float | None] | None
IDLE: Turn = (True, None)


class Turning(Protocol):
    """What the threads ask of their engine."""

    def turn(self, asked: list[Ask], closed: bool) -> Turn:
        """Does what was asked, and a step. Returns whether to wait for what is asked next, and how many seconds at
        most (None: for ever); nothing when this was the end."""

    def release(self, error: BaseException | None = None) -> None:
        """Whoever keeps an engine that has ended, or the error that it ended by, keeps none of its memory: another
        model may be loaded next."""

    def measure(self, gauge: Gauge) -> None:
        """Adds what the gauge reads to the trace."""


def start(thread: threading.Thread, end: Callable[[], object]) -> None:
    """Starts a thread that `end` asks to come to its end."""
    for ended in [each for each in list(_running) if not each.is_alive()]:
        _running.pop(ended, None)
    thread.start()
    _running[thread] = end


@atexit.register
def _end() -> None:
    left = dict(_running)
    for end in left.values():
        end()
    for thread in left:
        thread.join(PATIENCE)


def keep_stepping(
    weak: weakref.ref[Turning], inbox: Inbox, loads: list[Callable[[], None]], ready: Future[None]
) -> None:
    """The engine's thread, which loads first."""
    try:
        loads.pop()()
    except BaseException as error:
        try:
            if (engine := weak()) is not None:  # who keeps the error keeps the engine
                engine.release(error)
        finally:
            ready.set_exception(error)  # whatever that raises: somebody waits
        return
    ready.set_result(None)
    waits: Turn = (False, None)
    try:
        while waits is not None:
            if waits == IDLE:
                garbage.resume()
            asked, closed = inbox.take(*waits)
            garbage.put_off()
            if (engine := weak()) is None:
                return
            try:
                waits = engine.turn(asked, closed)
            except BaseException as error:
                engine.release(error)
                raise
            if waits is None:
                engine.release()
            del asked, engine
    finally:
        garbage.resume()


def keep_measuring(weak: weakref.ref[Turning], stop: threading.Event, card: Card | None) -> None:
    """The thread that measures the machine."""
    gauge = Gauge(card)
    while not stop.wait(TELEMETRY_INTERVAL) and (engine := weak()) is not None:
        engine.measure(gauge)
        del engine


def end_both(inbox: Inbox, stop: threading.Event) -> None:
    """Asks both to end, from any thread."""
    inbox.close()
    stop.set()
