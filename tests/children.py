"""The processes that this one has started."""

import psutil

from engine.jobs import spawn


def children() -> set[int]:
    """All that live, but the server that forks them: it stays."""
    return {child.pid for child in psutil.Process().children(recursive=True)} - {spawn.server_pid()}
