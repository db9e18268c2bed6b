"""What was read of each run's file, and what a person has marked: one SQLite file beside the runs. No Qt in here."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from app.runs.entry import Entry
from engine.library import RunFacts

VERSION = 1
TABLES = """
create table if not exists facts (name text primary key, modified integer, size integer, facts text, problem text);
create table if not exists marks (identity text primary key, tags text not null, pinned integer not null);
"""


@dataclass(frozen=True, slots=True)
class Marks:
    tags: tuple[str, ...] = ()
    pinned: bool = False


class RunIndex:
    """Facts are believed as long as the file's time and size are the same. Marks belong to the run, whatever its file
    is called. A file that cannot be read as an index is put aside and begun anew."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self, found: list[Entry]) -> list[Entry]:
        """The same files, with what is known of them."""
        with self._open() as db:
            facts = {name: told for name, *told in db.execute("select * from facts")}
            marks = {identity: _marks(*told) for identity, *told in db.execute("select * from marks")}
        return [_known(entry, facts.get(entry.path.name), marks) for entry in found]

    def keep_facts(self, entry: Entry) -> None:
        facts = json.dumps(entry.facts.to_json()) if entry.facts is not None else ""
        row = entry.path.name, entry.modified, entry.size, facts, entry.problem
        with self._open() as db:
            db.execute("insert or replace into facts values (?, ?, ?, ?, ?)", row)

    def keep_marks(self, identity: str, marks: Marks) -> None:
        with self._open() as db:
            row = identity, json.dumps(marks.tags), marks.pinned
            db.execute("insert or replace into marks values (?, ?, ?)", row)

    def marks(self, identity: str) -> Marks:
        with self._open() as db:
            row = db.execute("select tags, pinned from marks where identity = ?", (identity,)).fetchone()
        return _marks(*row) if row else Marks()

    def forget_others(self, names: set[str]) -> None:
        """Facts of files that are gone; their marks stay, for a file may come back."""
        with self._open() as db:
            gone = [(name,) for (name,) in db.execute("select name from facts") if name not in names]
            db.executemany("delete from facts where name = ?", gone)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            db = _connected(self.path)
        except sqlite3.DatabaseError:
            self.path.replace(self.path.with_suffix(".damaged"))
            db = _connected(self.path)
        with contextlib.closing(db), db:
            yield db


def _connected(path: Path) -> sqlite3.Connection:
    """Raises sqlite3.DatabaseError for what is no index of this version."""
    path.touch(0o600)
    db = sqlite3.connect(path, timeout=5)
    try:
        (version,) = db.execute("pragma user_version").fetchone()
        if version not in (0, VERSION):
            raise sqlite3.DatabaseError(f"version {version}")
        if not version:
            db.execute("pragma journal_mode = wal")
            db.executescript(TABLES)
            db.execute(f"pragma user_version = {VERSION}")
        db.execute("pragma synchronous = normal")
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db


def _marks(tags: str, pinned: int) -> Marks:
    return Marks(tuple(json.loads(tags)), bool(pinned))


def _known(entry: Entry, told: list[object] | None, marks: dict[str, Marks]) -> Entry:
    if told is None or told[:2] != [entry.modified, entry.size]:
        return entry
    facts = None
    if told[2]:
        try:
            facts = RunFacts.from_json(json.loads(str(told[2])))
        except (ValueError, TypeError, KeyError):  # of another version
            return entry
    own = marks.get(facts.identity, Marks()) if facts is not None else Marks()
    return replace(entry, facts=facts, problem=str(told[3]), tags=own.tags, pinned=own.pinned)
