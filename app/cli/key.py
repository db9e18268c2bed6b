"""`batchscope key`: who may ask a server."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from engine import InvalidInput
from engine.serving import KeyFile, made_key


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    key = commands.add_parser("key", help="make, list and revoke the API keys of `batchscope serve`")
    doing = "new: make a key and print it, this once; list: their names; revoke: refuse one, on servers that run too"
    key.add_argument("what", choices=DOING, help=doing)
    key.add_argument("--name", help="whose it is, as the window and the log call it (default of a new one: key N)")
    keys_option(key)
    key.set_defaults(command=lambda options: DOING[options.what](options))


def keys_option(to: argparse.ArgumentParser) -> None:
    said = "the file of keys (default: keys.json in the data folder)"
    to.add_argument("--keys", type=Path, metavar="FILE", help=said)


def keys_of(options: argparse.Namespace) -> Path:
    if options.keys is not None:
        return Path(options.keys)
    from app.storage import data  # needs Qt, which knows the desktop's folders

    return data() / "keys.json"


def make(options: argparse.Namespace) -> int:
    file = KeyFile(keys_of(options))
    name = options.name
    if name is None:
        names, number = {key.name for key in file.read()}, 1
        while f"key {number}" in names:
            number += 1
        name = f"key {number}"
    told, kept = made_key(name)
    file.add(kept)
    print(told)
    return 0


def show(options: argparse.Namespace) -> int:
    path = keys_of(options)
    keys = KeyFile(path).read()
    for key in keys:
        print(f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(key.created))}  {key.name}")
    if not keys:
        print(f"no keys in {path}")
    return 0


def revoke(options: argparse.Namespace) -> int:
    if options.name is None:
        raise InvalidInput("revoke: name the key with --name; `batchscope key list` has the names")
    KeyFile(keys_of(options)).revoke(options.name)
    print(f"{options.name} is revoked")
    return 0


DOING = {"new": make, "list": show, "revoke": revoke}
