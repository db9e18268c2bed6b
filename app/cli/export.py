"""`batchscope export`: a saved run or race as files for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.cli.progress import Bar
from engine import InvalidInput
from engine.compare import RACE_SUFFIX
from engine.export import KINDS, Source, export, kind_of
from engine.jobs import LoadProgress
from engine.trace import RUN_SUFFIX


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    kinds = "\n".join(f"  {name:<10}{kind.words} ({', '.join(kind.endings)})" for name, kind in KINDS.items())
    also = f"what can be written:\n{kinds}\n\nA race is written with all its lanes, several runs as a comparison."
    form = argparse.RawDescriptionHelpFormatter
    does = "a saved run or race as a report, as a trace for Perfetto, or as tables"
    to = commands.add_parser("export", help=does, formatter_class=form, epilog=also)
    to.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help=f"a {RUN_SUFFIX} or {RACE_SUFFIX} file, or several runs"
    )
    to.add_argument("--to", type=Path, nargs="+", required=True, metavar="FILE", help="its ending says what is written")
    what = "where the ending leaves a choice (.json: perfetto, .csv and .parquet: requests)"
    to.add_argument("--what", choices=KINDS, help=what)
    to.set_defaults(command=run_export)


def run_export(options: argparse.Namespace) -> int:
    """All names are looked at before the run is read, so that a mistake costs no wait."""
    kinds = [KINDS[kind_of(path, options.what)] for path in options.to]
    for path in options.to:
        if path.exists():
            raise InvalidInput(f"{path} exists; choose another name, or delete it first")
    with Bar(False, counted=False) as bar:

        def told(done: int, total: int) -> None:
            bar.loading(LoadProgress(stage, done, total))

        stage = "reading"
        source = Source.read(options.runs, told)
        for path in options.to:
            stage = f"writing {path.name}"
            export(source, path, options.what, told)
    for path, kind in zip(options.to, kinds):
        print(f"{path}: {kind.words}, {path.stat().st_size:,} bytes")
    return 0
