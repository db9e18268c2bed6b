"""The one client of all servers, in a process of its own, as long as a block takes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from engine.bench.serving.client import Asked, Heard

ROOT = Path(__file__).parents[3]


class Clients:
    """Its process, as long as a block takes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, asked: Asked) -> Heard:
        """Waits for all answers. Raises RuntimeError where the client is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(asked)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client ended with {self._process.wait()}")
        return Heard(**json.loads(line))


@contextmanager
def clients() -> Iterator[Clients]:
    order, pipe = [sys.executable, "-m", "engine.bench.serving.client"], subprocess.PIPE
    process = None
    try:
        with unbroken():
            process = subprocess.Popen(order, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        yield Clients(process)
    finally:
        if process is not None:
            process.kill()
            process.communicate()


@contextmanager
def unbroken() -> Iterator[None]:
    """Ctrl+C waits until the block is over: a process that was begun while it came would be nobody's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: told.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if told.is_set():
        raise KeyboardInterrupt
