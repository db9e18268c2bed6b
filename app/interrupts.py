"""Ctrl+C, later than at once."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupt_as_event() -> Iterator[threading.Event]:
    """Ctrl+C sets the event; a second one is as it always was. Only the main thread hears signals."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(*_: object) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, stop)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl+C waits until the block is over: while Qt's libraries are imported, it would abort the process, or be lost.
    Raises KeyboardInterrupt then."""
    with interrupt_as_event() as interrupted:
        yield
    if interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def heard() -> Iterator[None]:
    """Ctrl+C ends the block at once as ever, and after it where a library's import did not notice, or Python could not
    raise it, as while it frees an object: then nothing is printed of that."""
    told = threading.Event()

    def stop(*_: object) -> None:
        told.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def say(unraisable: "sys.UnraisableHookArgs") -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            said(unraisable)

    before, said = signal.signal(signal.SIGINT, stop), sys.unraisablehook
    sys.unraisablehook = say
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = said
    if told.is_set():
        raise KeyboardInterrupt
