"""Adapters (LoRA) as a person names them: a source, or NAME=SOURCE."""

import re
from pathlib import PurePath
from typing import Any

from engine.config.checks import check

NAME = re.compile(r"[\w.-]{1,64}")
MOST = 64  # of one model: each has a place in every layer's matrices


def adapter_name(given: str) -> str:
    """What requests call it: what stands before "=", or the last part of its source."""
    name, equals, source = given.partition("=")
    return name if equals else PurePath(source or name).name


def adapter_source(given: str) -> str:
    """The folder, or the name of one that ships."""
    name, equals, source = given.partition("=")
    return source if equals else name


def adapters(value: Any) -> tuple[str, ...]:
    """Several of them, each of another name."""
    given = (value,) if isinstance(value, str) else value
    listed = isinstance(given, (tuple, list)) and all(isinstance(each, str) and each.strip() for each in given)
    check(listed, "adapters", value, "must be folders of adapters, or NAME=FOLDER")
    given = tuple(each.strip() for each in given)
    names = [adapter_name(each) for each in given]
    for name, each in zip(names, given):
        rule = "its name must be of letters, digits, dots and dashes: give it as NAME=FOLDER"
        check(NAME.fullmatch(name) is not None and bool(adapter_source(each)), "adapter", each, rule)
        check(names.count(name) == 1, "adapter", each, f"another one is called {name}: give it as NAME=FOLDER")
    check(len(given) <= MOST, "adapters", len(given), f"must be {MOST} at most")
    return given
