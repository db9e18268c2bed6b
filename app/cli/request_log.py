"""Where a server tells what became of requests: the options of that, and `batchscope requests`, which reads it."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from app.cli.options import size_in_bytes
from engine import InvalidInput
from engine.serving import OtlpSettings, RequestLogSettings

DEFAULT = "requests.db"
OTLP = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


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
    from app.storage import data  # needs Qt, which knows the desktop's folders

    where = where or str(data() / DEFAULT)
    spool: Path | None = options.log_spool
    if spool is None:
        bare = re.sub(r"[^\w.-]+", "-", re.sub(r"//.*@", "//", where).partition("?")[0]).strip("-.")
        spool = data() / f"{bare}.spool" if "://" in where else Path(f"{Path(where).expanduser()}.spool")
    return RequestLogSettings(where, spool, options.log_text, options.log_spool_size)


def otlp_of(options: argparse.Namespace) -> OtlpSettings | None:
    """Raises InvalidInput."""
    if options.otlp is None and not any(os.environ.get(name) for name in OTLP):
        if options.otlp_text:
            raise InvalidInput("--otlp-text says what spans have; say where they go with --otlp URL")
        return None
    return OtlpSettings(options.otlp or None, options.otlp_text)
