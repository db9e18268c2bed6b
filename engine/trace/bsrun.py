"""A trace on disk: one SQLite file a run, written as the trace grows and readable after a crash."""

import contextlib
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.config.specs import InvalidInput
from engine.jobs.progress import LoadCancelled
from engine.trace.records import OLDEST, VERSION, Notice, Older, decode, encode
from engine.trace.records.check import RecordCheck
from engine.trace.trace import Trace

SUFFIX = ".bsrun"
READ = 256  # records read between two looks at `cancelled`
BATCH = 4_096  # records a transaction at most
LONGEST = 64 << 20  # bytes of a record at most
APPLICATION_ID = 0x42534350  # "BSCP", in the file's header
TABLE = "CREATE TABLE records (seq integer primary key, kind text not null, data blob not null)"


class TraceWriter:
    """Copies a trace's new records to a file a few times a second, from a thread of its own, until closed.

    Only who made the file may read it. Raises InvalidInput when it exists, or cannot be made. After a write error (a
    full disk) `error` says so and the trace in memory goes on.
    """

    def __init__(self, trace: Trace, path: Path, interval: float = 0.25) -> None:
        self.trace, self.path, self.error = trace, path, ""
        self._interval, self._written = interval, 0
        self._closing = threading.Event()
        if path.exists():
            raise InvalidInput(f"{path} exists; choose another name, or delete it first")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600, exist_ok=False)
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
        db.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
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
    """Writes a whole trace to `path`; what was there is replaced when that is done. Raises InvalidInput."""
    half = path.with_name(f"{path.name}.{os.getpid()}.part")
    writer = TraceWriter(trace, half)
    writer.close()
    try:
        if writer.error:
            raise OSError(writer.error)
        half.replace(path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise InvalidInput(f"cannot write the run to {path}: {error}") from error


def load(
    path: Path,
    progress: Callable[[int, int], None] | None = None,
    cancelled: threading.Event | None = None,
    into: Trace | None = None,
) -> Trace:
    """The trace in a run's file, as far as it was written. Raises InvalidInput when it is no such file, or holds what
    no run could have written. `progress` hears how many records were read, and of how many; setting `cancelled` ends
    it with LoadCancelled. An empty trace that is given grows `into` it, and can be looked at meanwhile."""
    if not path.is_file():
        raise InvalidInput(f"no run at {path}; choose a {SUFFIX} file")
    trace, check = Trace() if into is None else into, RecordCheck()
    try:
        with opened(path) as db:
            db.set_progress_handler(lambda: cancelled is not None and cancelled.is_set(), 10_000)
            parted = parted_from(path)
            version = format_of(path, db, parted)
            older = Older(version) if version < VERSION else None
            (total,) = db.execute("select count(*) from records").fetchone()
            if not total:
                if parted:
                    raise InvalidInput(parted)
                raise InvalidInput(f"{path} holds no record: its run ended before it began; delete it")
            rows = db.execute("select kind, data from records order by seq")
            while batch := rows.fetchmany(READ):
                records = [decode(kind, data, older) for kind, data in batch]
                for record in records:
                    check(record)
                trace.extend(records)
                if progress is not None:
                    progress(len(trace.records), total)
                if cancelled is not None and cancelled.is_set():
                    raise LoadCancelled(f"reading {path.name} was cancelled")
            if parted:
                trace.append(Notice(trace.records.times[-1], "warning", f"the end is missing: {parted}"))
    except (sqlite3.Error, OSError, ValueError, TypeError) as error:
        if cancelled is not None and cancelled.is_set():
            raise LoadCancelled(f"reading {path.name} was cancelled") from error
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path} cannot be read as a Batchscope run: {error}") from error
    trace.complete = True
    return trace


@contextlib.contextmanager
def opened(path: Path, any_thread: bool = False) -> Iterator[sqlite3.Connection]:
    """Read only; `any_thread` where several read, in turns. The file of a run that was killed has another beside it,
    and SQLite must be able to write to that folder: where it may not, on a read-only medium say, both are copied
    first."""
    with contextlib.ExitStack() as stack:
        if is_open(path) and not os.access(path.parent, os.W_OK):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for part in (path, beside(path)):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(part, folder / part.name)
            path = folder / path.name
        place = f"{path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(place, uri=True, check_same_thread=not any_thread)
        db = stack.enter_context(contextlib.closing(connection))
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        db.execute("pragma trusted_schema = off")
        yield db


BEGINNING = 0.2  # seconds that a writer may take between its first write and the file beside it


def beside(path: Path) -> Path:
    """What was written last, until the run is over."""
    return path.with_name(f"{path.name}-wal")


def is_open(path: Path) -> bool:
    """It is written, or its writer was killed."""
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\2\2"  # the two bytes of SQLite's header that tell of a log beside it


def parted_from(path: Path) -> str:
    """Where a run that was killed has lost the file beside it: that, in words."""
    name = beside(path).name
    if not is_open(path) or beside(path).exists():
        return ""
    time.sleep(BEGINNING)
    if beside(path).exists():
        return ""
    return f"{path} was copied without {name}, which holds what was written last; put that beside it"


def format_of(path: Path, db: sqlite3.Connection, parted: str) -> int:
    """The version of its format. Raises InvalidInput unless it is a run of this one or an earlier one, and nothing but
    its one table."""
    (application,) = db.execute("pragma application_id").fetchone()
    (version,) = db.execute("pragma user_version").fetchone()
    if application != APPLICATION_ID:
        raise InvalidInput(f"{path} is not a Batchscope run; choose a {SUFFIX} file")
    if version > VERSION:
        raise InvalidInput(f"{path} was written by a newer Batchscope (format {version}); update to open it")
    if version < OLDEST:
        raise InvalidInput(f"{path} says format {version}, which there never was; choose a {SUFFIX} file")
    schema = db.execute("select sql from sqlite_master").fetchall()
    if parted and not schema:
        raise InvalidInput(parted)
    if schema != [(TABLE,)]:
        raise InvalidInput(f"{path} holds other tables than a run; choose a {SUFFIX} file that Batchscope wrote")
    return int(version)
