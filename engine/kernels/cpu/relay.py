"""Words in memory that processes share, which one raises and another waits for: two int64, the second ours."""

import time
from ctypes import c_long, c_void_p

from engine.kernels.cpu.library import function, native

GLANCE = 50e-6  # seconds between looks, where no kernel is compiled


def await_word(word: int, least: int, broken: int, patience: float) -> bool:
    """Until the word at that address is `least` or more; False where that does not come within so many seconds, or the
    word at `broken` is set."""
    if native().library is not None:
        return bool(function("await_word")(c_void_p(word), c_long(least), c_void_p(broken), c_long(int(1e9 * patience))))
    value, given_up, until = c_long.from_address(word), c_long.from_address(broken), time.monotonic() + patience
    while value.value < least:
        if given_up.value or time.monotonic() > until:
            return False
        time.sleep(GLANCE)
    return True


def publish_word(word: int, value: int) -> None:
    """Raises the word, after all that was written before, and wakes who waits for it."""
    if native().library is not None:
        function("publish_word")(c_void_p(word), c_long(value))
    else:
        c_long.from_address(word).value = value
