"""`batchscope requests` reads a request log; and the options of `serve` that say where one goes, and spans."""

from __future__ import annotations

import argparse
import json
import os
import re
from pathlib import Path
from typing import Any

from app.cli.shared.columns import columns
from app.cli.shared.options import size_in_bytes, whole
from engine import InvalidInput
from engine.serving import OtlpSettings, RequestLogSettings

DEFAULT = "requests.db"
OTLP = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


HEAD = ("time, UTC", "key", "route", "status", "prompt", "cached", "output", "queue", "TTFT", "latency", "ends")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    requests = commands.add_parser("requests", help="the last requests that a server's log has (--request-log)")
    where = "the log: a file of SQLite, or postgresql://USER@HOST/DATABASE (default: requests.db in the data folder)"
    requests.add_argument("log", nargs="?", metavar="FILE|URL", help=where)
    requests.add_argument("--last", type=whole, default=20, metavar="N", help="how many (default: 20)")
    requests.add_argument("--json", action="store_true", help="print whole rows as JSON")
    requests.set_defaults(command=show)


def show(options: argparse.Namespace) -> int:
    try:
        from engine.serving import last_requests
    except ImportError as error:
        raise InvalidInput(f"a request log needs {error.name}: pip install 'batchscope[serve]'") from error
    rows = last_requests(options.log or str(default_log()), options.last)
    if options.json:
        print(json.dumps(rows, indent=1, default=str))
    else:
        for line in columns([HEAD, *map(_cells, rows)], right=range(3, 10)):
            print(line)
    return 0


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    times = (row[f"{name}_seconds"] for name in ("queue", "ttft", "latency"))
    tokens = (f"{row[f'{name}_tokens']:,}" for name in ("prompt", "cached", "output"))
    ends = row["error"] or ", ".join(row["finish_reasons"])
    seen = f"{row['time']:%Y-%m-%d %H:%M:%S}", row["key_name"] or "-", row["route"], str(row["status"])
    return (*seen, *tokens, *("-" if time is None else f"{time:.3f} s" for time in times), ends)


def default_log() -> Path:
    from app.storage import data  # needs Qt, which knows the desktop's folders

    return data() / DEFAULT


def telling_options(to: argparse.ArgumentParser) -> None:
    log = "a row for each request: in a file of SQLite (default: requests.db in the data folder), or postgresql://USER@HOST/DATABASE"
    to.add_argument("--request-log", nargs="?", const="", metavar="FILE|URL", help=log)
    to.add_argument("--log-text", action="store_true", help="the request log keeps prompts and answers too")
    spool = "where rows wait while the database is away (default: beside it, or in the data folder)"
    to.add_argument("--log-spool", type=Path, metavar="FILE", help=spool)
    most = "how much of them; later rows are dropped and counted (default: 64M)"
    to.add_argument("--log-spool-size", type=size_in_bytes, default=64 << 20, metavar="SIZE", help=most)
    traces = (
        "send OpenTelemetry's spans and measures there, over HTTP (default: where $OTEL_EXPORTER_OTLP_ENDPOINT says)"
    )
    to.add_argument("--otlp", nargs="?", const="", metavar="URL", help=traces)
    to.add_argument("--otlp-text", action="store_true", help="spans have prompts and answers too")


def request_log_of(options: argparse.Namespace) -> RequestLogSettings | None:
    """Raises InvalidInput."""
    where: str | None = options.request_log
    if where is None:
        if options.log_text or options.log_spool is not None:
            raise InvalidInput("--log-text and --log-spool are the request log's; ask for it with --request-log")
        return None
    where = where or str(default_log())
    spool: Path | None = options.log_spool
    if spool is None:
        bare = re.sub(r"[^\w.-]+", "-", re.sub(r"//.*@", "//", where).partition("?")[0]).strip("-.")
        spool = default_log().parent / f"{bare}.spool" if "://" in where else Path(f"{Path(where).expanduser()}.spool")
    return RequestLogSettings(where, spool, options.log_text, options.log_spool_size)


def otlp_of(options: argparse.Namespace) -> OtlpSettings | None:
    """Raises InvalidInput."""
    if options.otlp is None and not any(os.environ.get(name) for name in OTLP):
        if options.otlp_text:
            raise InvalidInput("--otlp-text says what spans have; say where they go with --otlp URL")
        return None
    return OtlpSettings(options.otlp or None, options.otlp_text)
