"""Runs into one Chrome trace: each on the same clock, which begins at its first request."""

import gzip
import threading
from pathlib import Path
from typing import TextIO, cast

from engine.export.chrome_trace.event_file import EventFile
from engine.export.chrome_trace.run_events import PROCESSES, RunEvents
from engine.export.reproduction import all_commands, citation, made_by
from engine.export.source import Progress, Source
from engine.jobs.progress import LoadCancelled

LOOK = 256  # records between two looks at `cancelled`


def write_chrome_trace(
    source: Source, path: Path, progress: Progress | None = None, cancelled: threading.Event | None = None
) -> None:
    """Writes the runs as Chrome trace JSON, gzipped where the name ends with .gz; in memory are only the records at
    hand. Raises OSError and LoadCancelled."""
    total = sum(len(run.trace.records) for run in source.runs)
    done = 0
    header = source.runs[0].trace.header
    about: dict[str, object] = {"title": source.title, "model": header.model.name}
    about |= {"cpu": header.machine.cpu, "gpu": header.machine.gpu}
    about |= {"made_by": made_by(), "commands": all_commands(source), "citation": citation(source)}
    with _opened(path) as out:
        file = EventFile(out, about | {"versions": header.versions, "created": header.created})
        flows = 0
        for number, run in enumerate(source.runs):
            before = f"{run.name}: " if len(source.runs) > 1 else ""
            events = RunEvents(file, run.trace.origin or 0.0, 1 + PROCESSES * number, before, flows)
            end = len(run.trace.records)
            for at in range(0, end, LOOK):
                if cancelled is not None and cancelled.is_set():
                    raise LoadCancelled("the export was cancelled")
                batch = run.trace.records[at : min(at + LOOK, end)]
                for record in batch:
                    events.feed(record)
                done += len(batch)
                if progress is not None:
                    progress(done, total)
            events.close()
            flows = events.samples.flows
        file.close()


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "wt", 6, "utf-8", "replace"))
    return path.open("w", encoding="utf-8", errors="replace")
