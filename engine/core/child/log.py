"""What the engine's process logs, and where its interpreter leaves its stacks when it aborts."""

import contextlib
import faulthandler
import logging
import os
import tempfile
import weakref
from collections.abc import Callable
from logging.handlers import QueueHandler
from pathlib import Path
from typing import Any, Protocol

OWN_HANDLERS = ("transformers",)  # loggers of libraries that pass nothing on


class _Queue(Protocol):
    def put_nowait(self, record: logging.LogRecord) -> None: ...


class _Wire:
    """Takes records as a queue does, and sends them."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send

    def put_nowait(self, record: logging.LogRecord) -> None:
        record.processName = "engine"
        self._send("log", record)


def send_log(send: Callable[..., None]) -> None:
    """From now on this process's log, and warnings of Python, are sent to the parent, whose handlers decide."""
    wire: Any = _Wire(send)
    handler, root = QueueHandler(wire), logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for name in OWN_HANDLERS:
        logging.getLogger(name).addHandler(handler)
    logging.captureWarnings(True)


def take_log(record: logging.LogRecord) -> None:
    """In the parent: as if it were its own."""
    logging.getLogger(record.name).handle(record)


class Stacks:
    """The parent's side of a file that the child's interpreter writes into should it abort. It has no name once the
    child has opened it."""

    def __init__(self) -> None:
        descriptor, name = tempfile.mkstemp(prefix="batchscope-stacks-")
        self._file = os.fdopen(descriptor, encoding="utf-8", errors="replace")
        self.path = Path(name)
        weakref.finalize(self, self._file.close)

    def close(self) -> str:
        """What was written; "" where nothing was, and when it was closed before."""
        if self._file.closed:
            return ""
        self.path.unlink(missing_ok=True)
        with self._file:
            return self._file.read().strip()


def leave_stacks(path: Path) -> None:
    """In the child: from now on, should its interpreter abort."""
    with contextlib.suppress(OSError):
        faulthandler.enable(path.open("w", encoding="utf-8"))
        path.unlink()
