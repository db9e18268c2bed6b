"""A trace on disk: one SQLite file a run, written as the trace grows and readable after a crash."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from engine.config.specs import InvalidInput
from engine.jobs.progress import LoadCancelled
from engine.trace.records import VERSION, decode, encode
from engine.trace.trace import Trace

SUFFIX = ".bsrun"
READ = 256  # records read between two looks at `cancelled`
BATCH = 4_096  # records a transaction at most
APPLICATION_ID = 0x42534350  # "BSCP", in the file's header


class TraceWriter:
    """Copies a trace's new records to a file a few times a second, from a thread of its own, until closed.

    Raises InvalidInput when the file cannot be made. After a write error (a full disk) `error` says so and the trace
    in memory goes on.
    """

    def __init__(self, trace: Trace, path: Path, interval: float = 0.25) -> None:
        self.trace, self.path, self.error = trace, path, ""
        self._interval, self._written = interval, 0
        self._closing = threading.Event()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(self._open()):
                pass
        except (OSError, sqlite3.Error) as error:
            raise InvalidInput(f"cannot write the run to {path}: {error}; choose another place") from error
        self._thread = threading.Thread(target=self._loop, name="trace-writer", daemon=True)
        self._thread.start()

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, isolation_level=None)
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = normal")
        db.execute(f"pragma application_id = {APPLICATION_ID}")
        db.execute(f"pragma user_version = {VERSION}")
        db.execute(
            "create table if not exists records (seq integer primary key, kind text not null, data blob not null)"
        )
        return db

    def _loop(self) -> None:
        try:
            with contextlib.closing(self._open()) as db:
                while True:
                    closing = self._closing.wait(self._interval)
                    self._write(db)
                    if closing:
                        break
                db.execute("pragma wal_checkpoint(truncate)")
                db.execute("pragma journal_mode = delete")
        except (OSError, sqlite3.Error) as error:
            self.error = f"the run is no longer written to {self.path}: {error}"

    def _write(self, db: sqlite3.Connection) -> None:
        end = len(self.trace.records)
        while self._written < end:
            new = self.trace.records[self._written : min(end, self._written + BATCH)]
            rows = [(self._written + i, *encode(record)) for i, record in enumerate(new)]
            db.execute("begin")
            db.executemany("insert into records values (?, ?, ?)", rows)
            db.execute("commit")
            self._written += len(new)

    def close(self) -> None:
        """Writes what is left and ends the thread."""
        self._closing.set()
        self._thread.join()


def save(trace: Trace, path: Path) -> None:
    """Writes a whole trace to `path`, over what was there."""
    path.unlink(missing_ok=True)
    TraceWriter(trace, path).close()


def load(
    path: Path, progress: Callable[[int, int], None] | None = None, cancelled: threading.Event | None = None
) -> Trace:
    """The trace in a run's file, as far as it was written. Raises InvalidInput when it is no such file. `progress`
    hears how many records were read, and of how many; setting `cancelled` ends it with LoadCancelled."""
    if not path.is_file():
        raise InvalidInput(f"no run at {path}; choose a {SUFFIX} file")
    trace = Trace()
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            (application,) = db.execute("pragma application_id").fetchone()
            (version,) = db.execute("pragma user_version").fetchone()
            if application != APPLICATION_ID:
                raise InvalidInput(f"{path} is not a Batchscope run; choose a {SUFFIX} file")
            if version > VERSION:
                raise InvalidInput(f"{path} was written by a newer Batchscope (format {version}); update to open it")
            if version < VERSION:
                raise InvalidInput(
                    f"{path} was written by an older Batchscope (format {version}, this one reads {VERSION}); "
                    "make the run again"
                )
            (total,) = db.execute("select count(*) from records").fetchone()
            rows = db.execute("select kind, data from records order by seq")
            while batch := rows.fetchmany(READ):
                trace.extend([decode(kind, data) for kind, data in batch])
                if progress is not None:
                    progress(len(trace.records), total)
                if cancelled is not None and cancelled.is_set():
                    raise LoadCancelled(f"reading {path.name} was cancelled")
    except (sqlite3.Error, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path} cannot be read as a Batchscope run: {error}") from error
    trace.complete = True
    return trace
