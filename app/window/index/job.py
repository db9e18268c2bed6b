"""The work of a child process: reads a run, and keeps its index. No Qt in here."""

import os
from pathlib import Path
from time import perf_counter

from app.window.index.readers import WindowReaders, indexes
from engine.jobs import LoadProgress, Report

EVERY = 0.2  # seconds between two words of progress


def build(arguments: dict[str, str], report: Report) -> str:
    """Reads `run` and keeps its index in the folder `indexes`; gives its file. It takes what time nobody else needs."""
    os.nice(19)
    told = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal told
        now = perf_counter()
        if now >= told + EVERY or done == total:
            told = now
            report(LoadProgress("reading", done, total))

    return str(indexes(Path(arguments["indexes"])).build(Path(arguments["run"]), WindowReaders(), tell))
