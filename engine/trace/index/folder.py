"""The indexes of runs: what readers made of all records of a file, kept so that the file need not be read again."""

import contextlib
import os
import sqlite3
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine.config.specs import InvalidInput
from engine.trace.bsrun import format_of, opened, parted_from
from engine.trace.index import kept
from engine.trace.index.filed_log import CHUNK, FiledLog, Row, checksum
from engine.trace.index.frozen import kinds_in
from engine.trace.index.views import REQUESTS
from engine.trace.log import COLUMNS
from engine.trace.measures.metrics import measure
from engine.trace.records import VERSION, Notice, Older, Record, Submitted, decode
from engine.trace.records.check import RecordCheck
from engine.trace.records.older import EVENTS
from engine.trace.requests import RequestIndex
from engine.trace.trace import Trace

OWN = (  # modules whose objects are kept
    *("engine.trace.column", "engine.trace.tally", "engine.trace.presence", "engine.trace.measures.metrics"),
    *("engine.trace.measures.spread", "engine.trace.measures.priority_class"),
    *("engine.trace.requests", "engine.trace.records.request", "engine.trace.records.step"),
    "engine.config.sampling_params",
)
_SELECT = "select seq, kind, data from records where seq >= ? and seq < ? order by seq"


def forget_index(folder: Path, path: Path) -> None:
    """Removes the index of a run that is deleted next, where it has one."""
    with contextlib.suppress(OSError):
        (folder / f"{kept.identity(path)}{kept.SUFFIX}").unlink(missing_ok=True)


class Readers(Protocol):
    """Who reads all records of a run."""

    def take(self, records: Sequence[Record]) -> None:
        """The next records, in order."""
        ...

    def known(self) -> Mapping[str, Any]:
        """What they made of the records, by their names."""
        ...


class IndexFolder:
    """Runs of format 3 and later have indexes; of earlier ones, whose records tell of blocks only by those before
    them, none is made. Times and numbers in an index are believed since nobody else can write one: see `kept`.

    `modules`: those of the readers' objects; `packages`: all code that has a say in what they know.
    """

    def __init__(self, folder: Path, modules: Sequence[str], packages: Sequence[str]) -> None:
        self.folder, self._modules, self._packages = folder, (*OWN, *modules), ("engine.trace", *packages)

    def file(self, path: Path) -> Path:
        """Where the index of a run is, or would be."""
        return self.folder / f"{kept.identity(path)}{kept.SUFFIX}"

    def open(self, path: Path) -> Trace | None:
        """The run of a file by its index; None where there is none that can be believed: one that is damaged is
        removed. The trace's `known` holds what readers made of all its records."""
        try:
            file = self.file(path)
            if not file.exists():
                return None
        except OSError:
            return None
        try:
            known = kept.read(file, kept.key_of(self.folder), self._head(), self._kinds(), REQUESTS)
            trace = Trace.indexed(self._log(path, known), known)
        except (sqlite3.Error, OSError, ValueError, TypeError, KeyError, AttributeError):
            self.drop(file)
            return None
        with contextlib.suppress(OSError):
            os.utime(file)
        return trace

    def drop(self, file: Path) -> None:
        """Removes an index."""
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)

    def build(self, path: Path, readers: Readers, report: Callable[[int, int], None]) -> Path:
        """Reads a run and keeps what its readers made of it. `report` hears how many records were read, and of how
        many. Raises InvalidInput where the run cannot be read, or has no index."""
        file, trace, sums = self.file(path), Trace(), array("I")
        notices: list[Notice] = []
        begun = 0
        try:
            with opened(path) as db:
                version = _format(path, db)
                older, check = Older(version) if version < VERSION else None, RecordCheck()
                (total, first, last) = db.execute("select count(*), min(seq), max(seq) from records").fetchone()
                if (first, last) != (0, total - 1):
                    raise InvalidInput(f"{path} lacks records, or holds none; nothing is kept of it")
                for begin in range(0, total, CHUNK):
                    rows: list[Row] = db.execute(_SELECT, (begin, min(begin + CHUNK, total))).fetchall()
                    records = [decode(kind, data, older) for _, kind, data in rows]
                    sums.append(checksum(rows))
                    for place, record in enumerate(records, begin):
                        check(record)
                        if isinstance(record, Submitted) and not trace.open:
                            begun = place
                        trace.append(record)
                    readers.take(records)
                    notices += [record for record in records if isinstance(record, Notice)]
                    trace.forget(len(trace.records), columns=False)
                    report(len(trace.records), total)
            whole: dict[str, Any] = {"origin": trace.origin, "end": trace.end, "samples": trace.samples}
            whole["presence"] = trace.presence
            whole |= {"header": trace.header, "open": trace.open, "notices": notices, "begun": begun}
            log = {"version": version, "sums": np.array(sums), **trace.records.columns}
            known: dict[str, Any] = {**readers.known(), "trace": whole, "log": log, "last_run": None}
            if not trace.open:
                known["last_run"] = measure(Trace.indexed(self._log(path, known), known), first=begun)
            key = kept.key_of(self.folder)
            kept.write(file, key, self._head(), known, self._kinds(), REQUESTS)
            kept.make_room(self.folder)
        except (sqlite3.Error, OSError, ValueError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"no index of {path} can be kept: {error}") from error
        return file

    def _log(self, path: Path, known: Mapping[str, Any]) -> FiledLog:
        """The records of a file, where what is known of them may be so. Raises ValueError."""
        columns, requests = known["log"], known["requests"]
        times, places = columns["times"], columns["step_places"]
        size, steps = len(times), np.array(places, np.int64)
        fits = len({len(columns[name]) for name in COLUMNS[1:]}) == 1 and bool((np.diff(steps, prepend=-1) > 0).all())
        if not (size and fits and max(places, default=0) < size and len(columns["sums"]) == -(-size // CHUNK)):
            raise ValueError("columns that do not fit together")
        if not isinstance(requests, RequestIndex):
            raise ValueError("an index without requests")
        with opened(path) as db:
            version = _format(path, db)
            (last,) = db.execute("select max(seq) from records").fetchone()
        if (version, last) != (columns["version"], size - 1):
            raise ValueError("an index of another run")
        return FiledLog(path, version, columns, columns["sums"])

    def _head(self) -> dict[str, Any]:
        return {"made_by": kept.made_by(self._packages)}

    def _kinds(self) -> Mapping[str, type]:
        return kinds_in(self._modules)


def _format(path: Path, db: Any) -> int:
    parted = parted_from(path)
    version = format_of(path, db, parted)
    if parted or version < EVENTS:
        raise InvalidInput(parted or f"{path} is of format {version}, whose records need all before them")
    return version
