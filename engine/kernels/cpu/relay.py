"""Words in memory that ranks share, which one of them raises and another waits for: two int64, the second ours."""

import time
from collections.abc import Callable
from ctypes import Structure, byref, c_long, c_void_p

from engine.kernels.cpu.library import function, native

GLANCE = 50e-6  # seconds between looks, where no kernel is compiled


class RankLanes(Structure):
    """The lanes of all ranks, as `native/exchange.c` has their first words: of each so many bytes."""

    _fields_ = [("first", c_void_p), ("ranks", c_long), ("bytes", c_long)]


def await_word(word: int, least: int, lanes: RankLanes, patience: float, given_up: Callable[[], bool]) -> bool:
    """Until the word at that address is `least` or more; False where that does not come within so many seconds, or a
    rank gave up or left its step: as the lanes tell, or where no kernel is compiled, `given_up`."""
    if native().library is not None:
        return bool(function("await_word")(c_void_p(word), c_long(least), byref(lanes), c_long(int(1e9 * patience))))
    value, until = c_long.from_address(word), time.monotonic() + patience
    while value.value < least:
        if given_up() or time.monotonic() > until:
            return False
        time.sleep(GLANCE)
    return True


def publish_word(word: int, value: int) -> None:
    """Raises the word, after all that was written before, and wakes who waits for it."""
    if native().library is not None:
        function("publish_word")(c_void_p(word), c_long(value))
    else:
        c_long.from_address(word).value = value
