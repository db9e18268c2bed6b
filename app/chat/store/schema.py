"""The tables of the file that conversations are kept in, and how it is opened. No Qt in here."""

import contextlib
import sqlite3
from pathlib import Path

from app.language import tr
from engine import InvalidInput

VERSION = 1
BUSY_SECONDS = 2.0  # that another window may write for
TABLES = """
CREATE TABLE conversation (
    id INTEGER PRIMARY KEY, title TEXT NOT NULL, named INTEGER NOT NULL DEFAULT 0, pinned INTEGER NOT NULL DEFAULT 0,
    changed REAL NOT NULL, deleted REAL, columns TEXT NOT NULL DEFAULT '[]', beside INTEGER NOT NULL DEFAULT 0,
    ends TEXT NOT NULL DEFAULT '[]'
);
CREATE TABLE turn (
    id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE, parent INTEGER,
    role TEXT NOT NULL, text TEXT NOT NULL DEFAULT '', files TEXT NOT NULL DEFAULT '[]',
    facts TEXT NOT NULL DEFAULT '{}', next INTEGER, deleted REAL
);
CREATE INDEX turn_of ON turn (conversation);
CREATE TABLE preset (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, system TEXT NOT NULL, params TEXT NOT NULL, deleted REAL
);
CREATE VIRTUAL TABLE found USING fts5 (text, conversation UNINDEXED);
"""


def opened(path: Path | None) -> sqlite3.Connection:
    """The file, made where there is none and readable by its owner alone; None: nothing is kept. What was deleted
    before is gone for good. Raises InvalidInput where it cannot be used; it is left as it is then."""
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            path.chmod(0o600)
        file = sqlite3.connect(path or ":memory:", timeout=BUSY_SECONDS)
    except (OSError, sqlite3.Error) as error:
        raise InvalidInput(
            tr("{path} cannot be opened ({error}): make it writable, then start again", path=path, error=error)
        ) from error
    try:
        _prepare(file)
    except (sqlite3.Error, InvalidInput) as error:
        file.close()
        if isinstance(error, InvalidInput):
            raise InvalidInput(f"{path} {error}") from error
        raise InvalidInput(
            tr("{path} cannot be read ({error}): move it away, then start again", path=path, error=error)
        ) from error
    return file


def _prepare(file: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.OperationalError):  # a network's disk may have no shared memory
        file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = NORMAL")
    file.execute("PRAGMA foreign_keys = ON")
    file.execute("PRAGMA secure_delete = ON")
    (version,) = file.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        newer = tr(
            "was written by a newer Batchscope (format {version}): use that one, or move the file away", version=version
        )
        raise InvalidInput(newer)
    with file:
        if version == 0:
            file.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        gone, said = "SELECT id FROM conversation WHERE deleted", "SELECT 2 * id FROM turn WHERE deleted"
        if file.execute(f"DELETE FROM found WHERE conversation IN ({gone}) OR rowid IN ({said})").rowcount:
            file.execute("INSERT INTO found (found) VALUES ('optimize')")  # else its words stay in the index
        for table in ("conversation", "turn", "preset"):
            file.execute(f"DELETE FROM {table} WHERE deleted")
