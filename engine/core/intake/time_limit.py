"""Ends Python code that takes too long, on the thread that runs it."""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic


class _Watch:
    """One thread for all limits: to start one takes milliseconds while a process is busy, and prompts come by the
    hundred."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._until: dict[int, float] = {}  # by thread, when its limit is over
        self._wakes = inf
        self._thread: threading.Thread | None = None

    def begin(self, seconds: float) -> None:
        with self._changed:
            until = self._until[threading.get_ident()] = monotonic() + seconds
            if self._thread is None or not self._thread.is_alive():  # the first, or the first since a fork
                self._thread = threading.Thread(target=self._run, name="time-limit", daemon=True)
                self._thread.start()
            elif until < self._wakes:
                self._changed.notify()

    def end(self) -> None:
        """Nothing is raised any more, once this returns."""
        with self._changed:
            self._until.pop(threading.get_ident(), None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = monotonic()
                for thread in [thread for thread, until in self._until.items() if until <= now]:
                    del self._until[thread]
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TimeoutError))
                self._wakes = min(self._until.values(), default=inf)
                self._changed.wait(None if self._wakes == inf else self._wakes - now)


_watch = _Watch()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError inside the block when it takes longer, between two of its bytecodes. Blocks of a thread lie
    not within each other."""
    _watch.begin(seconds)
    try:
        yield
    finally:
        _watch.end()
