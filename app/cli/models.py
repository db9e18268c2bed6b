"""`batchscope models`: what is on this machine, what the hub has, and a download from it."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain
from textwrap import TextWrapper
from typing import Any

from app.cli.shared.columns import columns
from app.cli.shared.options import whole
from app.cli.shared.progress import job_bar
from app.words import bytes_words
from engine import InvalidInput
from engine.checkpoints import HubModel, ModelEntry, cached_models, download, hub_model, search_hub, shipped_models

MARGIN = "    "


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    models = commands.add_parser("models", help="the models on this machine; --search and --download: those on the hub")
    what = models.add_mutually_exclusive_group()
    what.add_argument("--search", metavar="QUERY", help="models on the Hugging Face hub whose names match")
    what.add_argument("--download", metavar="ID", help="fetch a model, e.g. owner/name, or go on where it stopped")
    models.add_argument("--revision", metavar="REV", help="with --download: a branch, a tag or a commit")
    pickles = "with --download: weights as pickle too, which must be converted to load"
    models.add_argument("--pickles", action="store_true", help=pickles)
    models.add_argument("--limit", type=whole, default=30, metavar="N", help="with --search: at most N (default: 30)")
    models.add_argument("--json", action="store_true", help="print it as JSON")
    models.set_defaults(command=run_models)


def run_models(options: argparse.Namespace) -> int:
    for name in ("revision", "pickles"):
        if getattr(options, name) and options.download is None:
            raise InvalidInput(f"--{name}: is of a download; give --download ID too")
    if options.download is not None:
        return fetch(options)
    if options.search is not None:
        found = search_hub(options.search, options.limit)
        show(options.json, found, search_text)
    else:
        show(options.json, [*shipped_models(), *cached_models()], text)
    return 0


def show(as_json: bool, items: Sequence[Any], words: Callable[[Sequence[Any]], str]) -> None:
    print(json.dumps([asdict(item) for item in items], indent=1, default=str) if as_json else words(items))


def fetch(options: argparse.Namespace) -> int:
    """Ctrl+C keeps what has come."""
    with suppress(InvalidInput):  # the download says why, or has no need of the hub
        model = hub_model(options.download, options.revision)
        if not options.json:
            print(f"{model.id} at {model.revision[:12]}: {bytes_words(model.size)}, {_terms(model)}")
    id, kept = options.download, "what has come is kept, and the same command goes on with it"
    with job_bar(options.json, kept, counted=True) as (bar, interrupted):
        given = {"pickles": options.pickles, "report": bar.loading, "cancelled": interrupted}
        folder = download(id, options.revision, **given)
    if options.json:
        print(json.dumps({"id": id, "revision": folder.name, "folder": str(folder)}, indent=1))
    else:
        print(f"it is in {folder}\nrun it: batchscope run --model {id}")
    return 0


def _terms(model: HubModel) -> str:
    return f"licence {model.licence or 'not named'}" + (", gated" if model.gated else "")


def text(entries: Sequence[ModelEntry]) -> str:
    def row(entry: ModelEntry) -> tuple[str, ...]:
        name = entry.source if entry.source != str(entry.folder) else entry.name
        revision, size = (entry.revision or "")[:12], bytes_words(entry.size)
        return name, revision, entry.place.value, size, _day(entry.changed), entry.problem

    return _table(("model", "revision", "place", "size", "changed"), list(map(row, entries)))


def search_text(found: Sequence[HubModel]) -> str:
    if not found:
        return "the hub has no text-generation model with safetensors whose name matches"
    rows = [(m.id, f"{m.downloads:,}", f"{m.likes:,}", m.licence, _day(m.updated), _gate(m)) for m in found]
    return _table(("model", "downloads", "likes", "licence", "updated"), rows)


def _gate(model: HubModel) -> str:
    return "gated: accept its licence on its page, then `hf auth login`" if model.gated else ""


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d") if seconds else ""


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns, and under a row its last value where there is one: a remark."""
    wrapper = TextWrapper(max(40, shutil.get_terminal_size().columns - 1), MARGIN, MARGIN, break_long_words=False)
    head, *others = columns([titles, *(row[:-1] for row in rows)])
    remarked = ([line, *wrapper.wrap(row[-1])] for line, row in zip(others, rows, strict=True))
    return "\n".join([head, *chain.from_iterable(remarked)])
