"""Errors that nobody expected: of slots, tasks, threads and Qt. They are logged and told, and the window goes on."""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from PySide6.QtCore import QMessageLogContext, QObject, QtMsgType, Signal, qInstallMessageHandler

log = logging.getLogger("unexpected")
qt_log = logging.getLogger("qt")
QT_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


@dataclass(frozen=True, slots=True)
class Mishap:
    """An error, in a line and whole; `notes` are what was added to it, `count` is how often it has happened at that
    place."""

    title: str
    notes: str
    details: str
    count: int


class Unexpected(QObject):
    """`happened` comes on the GUI thread, whatever thread the error is of."""

    happened = Signal(object)  # Mishap

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, str, int], int] = {}
        self._guard = threading.Lock()

    def tell(self, error: BaseException, where: str = "") -> None:
        """Logs an error and tells it; one that comes again and again from one place at its 1st, 10th, 100th time."""
        frames = traceback.extract_tb(error.__traceback__)
        last = frames[-1] if frames else None
        place = type(error).__name__, last.filename if last else where, last.lineno or 0 if last else 0
        with self._guard:
            count = self._counts[place] = self._counts.get(place, 0) + 1
        if set(str(count)[1:]) - {"0"} or str(count)[0] != "1":
            return
        said = str(error).strip().splitlines()
        title = ": ".join([type(error).__name__, *said[:1]])
        notes = " ".join(getattr(error, "__notes__", ()))
        log.error("%s%s", f"{where}: " if where else "", title, exc_info=error)
        self.happened.emit(Mishap(title, notes, "".join(traceback.format_exception(error)), count))

    @contextmanager
    def heard(self) -> Iterator[None]:
        """While this lasts, errors that reach nobody else come here."""
        hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
        sys.excepthook = self._on_error
        threading.excepthook = self._on_thread
        sys.unraisablehook = self._on_unraisable
        messages = qInstallMessageHandler(_on_message)
        try:
            yield
        finally:
            qInstallMessageHandler(messages)
            sys.excepthook, threading.excepthook, sys.unraisablehook = hooks

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """To errors of tasks that nobody awaits."""
        loop.set_exception_handler(self._on_task)

    def _on_error(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, Exception):
            self.tell(error)
        else:
            sys.__excepthook__(kind, error, trace)

    def _on_thread(self, what: threading.ExceptHookArgs) -> None:
        if isinstance(what.exc_value, Exception):
            self.tell(what.exc_value, f"thread {what.thread.name}" if what.thread is not None else "a thread")

    def _on_unraisable(self, what: Any) -> None:
        if isinstance(what.exc_value, Exception):
            self.tell(what.exc_value, what.err_msg or "")

    def _on_task(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception):
            self.tell(error, str(context.get("message", "")))
        else:
            log.error("%s", context.get("message"))


def _on_message(kind: QtMsgType, context: QMessageLogContext, text: str) -> None:
    qt_log.log(QT_LEVELS.get(kind, logging.WARNING), "%s", text)
