"""Garbage is collected by the window's own thread. Python collects on whichever thread makes the next object, and what
is collected there of Qt is destroyed there, or in the middle of whatever the window's thread is about."""

import contextlib
import gc
import time
from collections.abc import Iterator

from PySide6.QtCore import QTimer

EVERY_MS = 50
REST = 50  # times what the last collection of all objects took, until the next


class Collector:
    """Collects what is due by Python's own thresholds."""

    def __init__(self) -> None:
        self._rests_until = 0.0

    def collect(self) -> None:
        due = [age for age, (count, most) in enumerate(zip(gc.get_count(), gc.get_threshold())) if 0 < most < count]
        if not due:
            return
        begun = time.monotonic()
        if max(due) < 2 or begun < self._rests_until:
            gc.collect(min(max(due), 1))
            return
        gc.collect()
        ended = time.monotonic()
        self._rests_until = ended + REST * (ended - begun)


@contextlib.contextmanager
def collected_here() -> Iterator[None]:
    """By this thread alone, whose event loop runs meanwhile."""
    before = gc.isenabled()
    collector, timer = Collector(), QTimer(interval=EVERY_MS)
    timer.timeout.connect(collector.collect)
    timer.start()
    gc.disable()
    try:
        yield
    finally:
        timer.stop()
        if before:
            gc.enable()
