"""What a request log has, for those who look."""

from datetime import UTC
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from engine.config.checks import InvalidInput
from engine.serving.request_log.database import Database, words
from engine.serving.request_log.table import REQUESTS


def last_requests(where: str, count: int) -> list[dict[str, Any]]:
    """The newest rows, oldest first, of a file of SQLite or a URL; their times are in UTC. Raises InvalidInput where
    there is no log."""
    database = Database(where)
    if database.file is not None and not Path(database.file).is_file():
        raise InvalidInput(f"{database.name}: there is no request log; `batchscope serve --request-log` writes one")
    try:
        with database.reading() as connection:
            newest = select(REQUESTS).order_by(REQUESTS.c.time.desc()).limit(count)
            rows = [dict(row) for row in connection.execute(newest).mappings()][::-1]
    except (SQLAlchemyError, ValueError) as error:
        raise InvalidInput(f"{database.name} cannot be read as a request log: {words(error)}") from None
    finally:
        database.close()
    for row in rows:  # SQLite keeps no time zone
        row["time"] = row["time"].replace(tzinfo=UTC) if row["time"].tzinfo is None else row["time"].astimezone(UTC)
    return rows
