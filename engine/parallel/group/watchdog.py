"""The end of waiting for a rank that does not come, where the waiting itself hears of nothing: a kernel that spins."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

GLANCE = 0.05  # seconds
LAST = 10.0  # seconds in which what waits must have ended
STUCK = 70  # the exit code of a process in which it has not


class Expected(Protocol):
    """What a device comes to, sooner or later."""

    def query(self) -> bool: ...


class Watchdog:
    """Calls `abort` once, on a thread of its own, when what is expected is not there after `patience` seconds, or
    `broken` says that a rank is gone; `bit` is True from then on, before `abort` returns. Where it does not return
    within `last` seconds, or fails, `end` ends the process: nothing else would."""

    def __init__(
        self,
        patience: float,
        broken: Callable[[], bool],
        abort: Callable[[], object],
        *,
        last: float = LAST,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self.bit = False
        self._last, self._end = last, end
        self._patience, self._broken, self._abort = patience, broken, abort
        self._expected: deque[tuple[Expected, float]] = deque()
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, name="rank-watchdog", daemon=True).start()

    def expect(self, event: Expected) -> None:
        """From now on within the patience."""
        self._come()
        self._expected.append((event, time.monotonic() + self._patience))

    def bite(self) -> None:
        with self._lock:
            first, self.bit = not self.bit, True
        if not first:
            return
        stuck = threading.Timer(self._last, self._give_up, ("it did not return",))
        stuck.daemon = True
        stuck.start()
        try:
            self._abort()
        except RuntimeError as error:  # torch's
            self._give_up(str(error))
        stuck.cancel()

    def _give_up(self, why: str) -> None:
        print(
            f"the exchange with other ranks could not be ended ({why}): the process ends", file=sys.stderr, flush=True
        )
        self._end(STUCK)

    def _watch(self) -> None:
        while not (self.bit or self._broken() or self._late()):
            time.sleep(GLANCE)
        self.bite()

    def _late(self) -> bool:
        self._come()
        return bool(self._expected) and time.monotonic() > self._expected[0][1]

    def _come(self) -> None:
        """Those that are there are no longer expected: a device comes to one after another."""
        with self._lock:
            while self._expected and self._expected[0][0].query():
                self._expected.popleft()
