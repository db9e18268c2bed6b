"""One file of a run or a race, of the kind that is asked for or that its name tells."""

import os
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engine.config import InvalidInput
from engine.export.source import Progress, Source
from engine.jobs.progress import LoadCancelled

TABLE_ENDINGS = (".csv", ".json", ".parquet")


@dataclass(frozen=True, slots=True)
class ExportKind:
    """What can be written, as a menu says it; `endings`, the usual one first. `telling` are those of its endings that
    mean this kind where nobody says which."""

    words: str
    endings: tuple[str, ...]
    telling: tuple[str, ...] = ()


KINDS = {
    "report": ExportKind("report", (".html",), (".html",)),
    "perfetto": ExportKind("trace for Perfetto", (".json", ".json.gz"), (".json", ".json.gz")),
    "requests": ExportKind("table of requests", TABLE_ENDINGS, (".csv", ".parquet")),
    "steps": ExportKind("table of steps", TABLE_ENDINGS),
    "metrics": ExportKind("table of measures", TABLE_ENDINGS),
    "prompts": ExportKind("prompts, to send them again", (".jsonl",), (".jsonl",)),
}


def kind_of(path: Path, what: str | None = None, also: tuple[str, ...] = ()) -> str:
    """The kind of a file, one of `KINDS`: what was said, or what its name tells. Raises InvalidInput, which names the
    endings of those, and `also` others that the caller knows."""
    for name, kind in KINDS.items() if what is None else [(what, KINDS[what])]:
        if path.name.endswith(kind.telling if what is None else kind.endings):
            return name
    if what is None:
        known = dict.fromkeys([*(ending for kind in KINDS.values() for ending in kind.endings), *also])
        raise InvalidInput(f"{path.name!r} does not tell what to write; its name must end with {_listed(known)}")
    raise InvalidInput(
        f"{what} cannot be written as {path.name!r}; its name must end with {_listed(KINDS[what].endings)}"
    )


def _listed(endings: dict[str, None] | tuple[str, ...]) -> str:
    *before, last = endings
    return f"{', '.join(before)} or {last}" if before else last


def export(
    source: Source,
    path: Path,
    what: str | None = None,
    progress: Progress | None = None,
    cancelled: threading.Event | None = None,
) -> None:
    """Writes `path`; what was there is replaced when that is done. Raises InvalidInput for what cannot be written, and
    LoadCancelled once `cancelled` is set."""
    kind = kind_of(path, what)
    half = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        _write(source, half, kind, progress, cancelled)
        half.replace(path)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}; choose another place") from error
    finally:
        half.unlink(missing_ok=True)


def _look(cancelled: threading.Event | None) -> None:
    """Raises LoadCancelled once it is set."""
    if cancelled is not None and cancelled.is_set():
        raise LoadCancelled("the export was cancelled")


def _write(source: Source, path: Path, kind: str, progress: Progress | None, cancelled: threading.Event | None) -> None:
    """What writes a kind is imported when it is asked for, so that the window need not wait for it."""
    match kind:
        case "report":
            from engine.export.report import write_report

            write_report(source.watched(partial(_look, cancelled)), path)
        case "perfetto":
            from engine.export.chrome_trace import write_chrome_trace

            write_chrome_trace(source, path, progress, cancelled)
        case "prompts":
            from engine.export.prompts_file import write_prompts

            write_prompts(source, path)
        case _:
            from engine.export.table_file import write_table
            from engine.export.tables import table

            write_table(table(source, kind), path)
