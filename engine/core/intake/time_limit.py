"""Ends Python code that takes too long, on the thread that runs it."""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError inside the block when it takes longer, between two of its bytecodes."""
    thread, ending, over = threading.get_ident(), threading.Lock(), False

    def end() -> None:
        with ending:
            if not over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TimeoutError))

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with ending:
            over = True
        timer.cancel()
