"""The database that a request log is kept in."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError

from engine.config.checks import InvalidInput
from engine.serving.request_log.table import REQUESTS, SCHEMA, Row, columns, known, stored

PATIENCE = 5  # seconds that a database may take to let us in, or to let us write
SYSTEMS = {"sqlite": sqlite, "postgresql": postgresql}


class Away(Exception):
    """The database takes nothing now; later it may. Says why, without a row's values or a password."""


class Database:
    """`where` is a file of SQLite, or a URL. Raises InvalidInput for one that cannot be used; a server that does not
    answer is no reason."""

    def __init__(self, where: str) -> None:
        self.url = _url(where)
        self._system = self.url.get_backend_name()
        self.file = Path(self.url.database) if self._system == "sqlite" and self.url.database else None
        self._inode = 0
        self._engine = self._made()
        self._ready = False

    @property
    def name(self) -> str:
        """As people may read it: a password may stand in two places."""
        open_part = {name: value for name, value in self.url.query.items() if "password" not in name.lower()}
        plain = self.url.set(query=open_part)
        return str(self.file) if self.file is not None else plain.render_as_string(hide_password=True)

    def insert(self, rows: Sequence[Row]) -> int:
        """How many it refuses for what they hold. A row whose id is there already is written. Raises Away."""
        try:
            self._look()
            return self._insert(rows)
        except (SQLAlchemyError, OSError) as error:
            self._ready = False
            self._engine.dispose()
            raise Away(words(error)) from None

    def _insert(self, rows: Sequence[Row]) -> int:
        taken = [stored(row) for row in rows if known(row)]
        with self._engine.connect() as connection:
            self._prepare(connection)
            try:
                self._write(connection, taken)
                return len(rows) - len(taken)
            except Exception as error:
                if not _of_a_row(error):
                    raise
            return len(rows) - sum(self._written(connection, row) for row in taken)

    def _written(self, connection: Connection, row: Row) -> bool:
        """Whether the database takes this row."""
        try:
            self._write(connection, [row])
        except Exception as error:
            if not _of_a_row(error):
                raise
            return False
        return True

    def _write(self, connection: Connection, rows: list[Row]) -> None:
        order = SYSTEMS[self._system].insert(REQUESTS).on_conflict_do_nothing(index_elements=["id"])
        with connection.begin():
            if rows:
                connection.execute(order, rows)

    def check(self) -> None:
        """Makes the table. Raises Away, and InvalidInput where another table has its name."""
        try:
            self._look()
            with self._engine.connect() as connection:
                self._prepare(connection)
        except (SQLAlchemyError, OSError) as error:
            self._engine.dispose()
            raise Away(words(error)) from None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Raises SQLAlchemyError."""
        with self._engine.connect() as connection:
            yield connection

    def _prepare(self, connection: Connection) -> None:
        if self._ready:
            return
        with connection.begin():
            SCHEMA.create_all(connection)
            there = {column["name"] for column in inspect(connection).get_columns(REQUESTS.name)}
        if missing := [name for name in columns() if name not in there]:
            lacks = f"the table {REQUESTS.name} in {self.name} is another's: it has no {', '.join(missing)}"
            raise InvalidInput(f"{lacks}; name another database")
        self._ready = True

    def _look(self) -> None:
        """A file of SQLite that was moved away is made again, for its owner alone, as is what SQLite puts beside it."""
        if self.file is None:
            return
        with contextlib.suppress(FileNotFoundError):
            if self.file.stat().st_ino == self._inode:
                return
        self._engine.dispose()
        self._ready = False
        self.file.parent.mkdir(0o700, parents=True, exist_ok=True)
        handle = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._inode = os.fstat(handle).st_ino
        os.close(handle)

    def _made(self) -> Engine:
        more: dict[str, Any] = {"pool_size": 1, "max_overflow": 0, "pool_pre_ping": True, "hide_parameters": True}
        if self._system == "sqlite":
            engine = create_engine(self.url, connect_args={"timeout": PATIENCE}, **more)
            event.listen(engine, "connect", _journal)
            return engine
        limits = f"-c statement_timeout={PATIENCE}s -c lock_timeout={PATIENCE}s"
        given = {"connect_timeout": PATIENCE, "options": limits, "application_name": "batchscope"}
        given |= {"tcp_user_timeout": 1000 * PATIENCE}
        ours = {name: value for name, value in given.items() if name not in self.url.query}
        return create_engine(self.url, connect_args=ours, **more)

    def close(self) -> None:
        self._engine.dispose()


def _journal(connection: Any, _: Any) -> None:
    """Readers do not hold the writer up; what is committed is on the disk at the latest a checkpoint later."""
    for order in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL"):
        connection.execute(order)


def _url(where: str) -> URL:
    if "://" not in where:
        return URL.create("sqlite", database=str(Path(where).expanduser().absolute()))
    try:
        url = make_url(where)
        system = url.get_backend_name()
    except (ArgumentError, ValueError) as error:
        raise InvalidInput("request_log: it is no URL; give a file, or postgresql://USER@HOST/DATABASE") from error
    if system not in SYSTEMS:
        raise InvalidInput(f"request_log={system}: name a file (SQLite), or postgresql://USER@HOST/DATABASE")
    if system == "postgresql":
        if find_spec("psycopg") is None:
            raise InvalidInput("a log in PostgreSQL needs psycopg: pip install 'batchscope[postgres]'")
        return url.set(drivername="postgresql+psycopg")
    if not url.database or url.database == ":memory:":
        raise InvalidInput("request_log: name a file, such as sqlite:////var/lib/batchscope/requests.db")
    return url.set(drivername="sqlite")


def _of_a_row(error: Exception) -> bool:
    """Whether it is about what a row holds, so that another try would end as this one."""
    by_us = isinstance(error, StatementError) and not isinstance(error, DBAPIError)
    return by_us or isinstance(error, (DataError, IntegrityError, ValueError, TypeError, OverflowError))


def words(error: Exception) -> str:
    """The first line of what the driver says, or the system."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    said = str(getattr(error, "orig", None) or error).strip().splitlines()
    return f"{type(error).__name__}: {said[0][:300]}" if said else type(error).__name__
