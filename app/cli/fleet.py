"""`batchscope fleet`: a window that watches a server's replicas, and ends one to show that its streams go on."""

from __future__ import annotations

import argparse
import os

from app.cli.options import has_display
from app.interrupts import uninterrupted
from engine import InvalidInput

KEY = "BATCHSCOPE_KEY"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = f"watch the replicas of a server (`batchscope serve --replicas 2`); a key is taken from ${KEY}"
    to = commands.add_parser("fleet", help=does)
    to.add_argument("url", metavar="URL", help="the server's address, such as http://127.0.0.1:8000")
    to.set_defaults(command=watch)


def watch(options: argparse.Namespace) -> int:
    """Raises InvalidInput."""
    if not has_display():
        raise InvalidInput("there is no display to open a window on; GET /fleet tells the same as JSON")
    with uninterrupted():
        from app.window.fleet_window import open_fleet
    return open_fleet(options.url, os.environ.get(KEY, ""))
