"""Collections of garbage hold up every thread: all objects are looked at only while no engine has steps to do."""

import atexit
import gc
import threading

SELDOM = 1000  # collections of younger objects to one of all while engines step: some 7 million objects more

# Looking at all that is imported by now, which stays, would take 0.2 s.
gc.freeze()
atexit.register(gc.unfreeze)  # some libraries take for leaked what is not collected at the end

_lock = threading.Lock()
_stepping: set[int] = set()  # threads
_usual = gc.get_threshold()


class Process:
    """Whose this one is: `engines` where nothing but engines run in it. A window's objects are its own thread's to
    collect: in a process that both are in, a collection that was put off would come on an engine's."""

    engines = False


def put_off() -> None:
    """The calling thread has steps to do: what they leave is little and young, and a run's own records stay."""
    global _usual
    if not Process.engines:
        return
    with _lock:
        if not _stepping:
            _usual = gc.get_threshold()
            gc.set_threshold(*_usual[:2], SELDOM)
        _stepping.add(threading.get_ident())


def resume() -> None:
    """It has none, or ends. What was put off comes with the next objects that are made."""
    with _lock:
        if _stepping and not _stepping - {threading.get_ident()}:
            gc.set_threshold(*_usual)
        _stepping.discard(threading.get_ident())
