"""Threads that compute end before their interpreter does: one that it ends under takes the process with it, by a signal
and after all was done."""

import atexit
import threading
from collections.abc import Callable

PATIENCE = 10.0  # seconds that each of them may take
_running: dict[threading.Thread, Callable[[], object]] = {}


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
