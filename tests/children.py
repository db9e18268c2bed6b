"""The processes that this one has started."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from engine.jobs import spawn

TOLD = Path(f"/proc/self/task/{os.getpid()}/children").exists()


def children() -> set[int]:
    """All that live, but the server that forks them: it stays."""
    if TOLD:
        found = set(_below(os.getpid()))
    else:
        found = {child.pid for child in psutil.Process().children(recursive=True)}
    return found - {spawn.server_pid()}


def _below(pid: int) -> Iterator[int]:
    """As Linux tells it: psutil asks every process of the machine for its parent, which takes milliseconds."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split()):
                    yield child
                    yield from _below(child)
