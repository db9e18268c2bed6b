"""`batchscope fleet`: a window that watches a server's replicas, and ends one to show that its streams go on."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.cli.shared.options import has_display
from app.interrupts import uninterrupted
from engine import InvalidInput
from engine.remote import KEY_VARIABLE, ServerAddress, key_from


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = f"watch the replicas of a server (`batchscope serve --replicas 2`); a key is taken from ${KEY_VARIABLE}"
    to = commands.add_parser("fleet", help=does)
    to.add_argument("url", metavar="URL", help="the server's address, such as http://127.0.0.1:8000")
    to.add_argument("--key-file", type=Path, metavar="FILE", help=f"a file with the key (default: ${KEY_VARIABLE})")
    to.set_defaults(command=watch)


def watch(options: argparse.Namespace) -> int:
    """Raises InvalidInput."""
    address = ServerAddress(options.url, key_from(options.key_file))
    if not has_display():
        raise InvalidInput("there is no display to open a window on; GET /fleet tells the same as JSON")
    with uninterrupted():
        from app.fleet import FleetSource
        from app.window.fleet import FleetWindow
        from app.window.start.application import make_application
    app = make_application()
    window = FleetWindow(FleetSource(address))
    app.setQuitOnLastWindowClosed(True)
    window.show()
    return app.exec()
