"""Tables into files: CSV for a spreadsheet, JSON for a script, Parquet for what is large."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

from engine.config import InvalidInput
from engine.export.tables import Table


def csv_text(table: Table) -> str:
    """A line a row; nothing stands for None, numbers are written whole."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows())
    return out.getvalue()


def json_text(table: Table) -> str:
    """A list of objects, a line each."""
    names = list(table.columns)
    lines = ",\n".join(json.dumps(dict(zip(names, row)), ensure_ascii=False) for row in table.rows())
    return f"[\n{lines}\n]\n"


def _write_csv(table: Table, path: Path) -> None:
    path.write_text(csv_text(table), encoding="utf-8")


def _write_json(table: Table, path: Path) -> None:
    path.write_text(json_text(table), encoding="utf-8")


def _write_parquet(table: Table, path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InvalidInput(
            "Parquet is written by pyarrow, which is not installed: pip install 'batchscope[export]'"
        ) from None
    pyarrow.parquet.write_table(pyarrow.table(table.columns), path)


WRITERS: dict[str, Callable[[Table, Path], None]] = {
    ".csv": _write_csv,
    ".json": _write_json,
    ".parquet": _write_parquet,
}


def write_table(table: Table, path: Path) -> None:
    """As the name's ending says, one of `WRITERS`. Raises InvalidInput where a library is missing, and OSError."""
    WRITERS[path.suffix](table, path)
