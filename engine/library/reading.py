"""Facts of many files, read in a child of low priority: neither the window nor an engine waits for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.config.specs import InvalidInput
from engine.jobs.job import Report, run_job
from engine.jobs.progress import LoadProgress
from engine.library.facts import RunFacts, read_facts

NICE = 10
Hear = Callable[[Path, RunFacts | None, str], None]  # the file's facts, or why it has none


def read_library(paths: Sequence[Path], hear: Hear, cancelled: threading.Event) -> None:
    """Tells of each file as it is read, on a thread of its own; blocks. Raises LoadCancelled and JobDied."""

    def report(progress: LoadProgress) -> None:
        part = progress.part or {}
        facts = RunFacts.from_json(part["facts"]) if part["facts"] else None
        hear(Path(part["path"]), facts, part["error"])

    run_job("engine.library.reading:work", list(map(str, paths)), report, cancelled, light=True)


def work(arguments: Any, report: Report) -> dict[str, Any]:
    """The child."""
    os.nice(NICE)
    for done, path in enumerate(arguments, 1):
        facts, error = None, ""
        try:
            facts = read_facts(Path(path)).to_json()
        except (InvalidInput, OSError) as refused:
            error = str(refused)
        report(LoadProgress("reading", done, len(arguments), {"path": path, "facts": facts, "error": error}))
    return {}
