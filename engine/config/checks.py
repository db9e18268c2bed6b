"""Checks of what a person gives: what fails is named, with its value and the rule."""

from collections.abc import Iterable
from reprlib import Repr
from typing import Any

LARGEST = 1 << 1023  # of whole numbers that are a float too
_short = Repr()
_short.maxstring = _short.maxother = 80


class InvalidInput(ValueError):
    """A value the engine cannot take: the message names it, the limit and the remedy."""


def shown(value: object) -> str:
    """The value as a message shows it: long ones in part."""
    return _short.repr(value)


def check(ok: bool, name: str, value: object, rule: str) -> None:
    if not ok:
        raise InvalidInput(f"{name}={shown(value)}: {rule}")


def one_of(name: str, value: object, choices: Iterable[object]) -> None:
    known = tuple(choices)
    check(value in known, name, value, f"must be one of {', '.join(map(str, known))}")


def whole(name: str, value: Any, low: int = 1, high: int | None = None, rule: str = "") -> int:
    """`value` where it is a whole number in [low, high], of 64 bits at most."""
    limits = f"of at least {low:,}" if high is None else f"from {low:,} to {high:,}"
    ok = isinstance(value, int) and not isinstance(value, bool) and low <= value and (high is None or value <= high)
    check(ok, name, value, rule or f"must be a whole number {limits}")
    check(abs(value) < 1 << 63, name, value, "must fit in 64 bits, as runs keep it")
    return int(value)


def number(name: str, value: Any, low: float, high: float, rule: str) -> float:
    """`value` where it is a number in [low, high]: nan is in no such range."""
    ok = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    check(ok and (isinstance(value, float) or abs(value) < LARGEST), name, value, rule)
    return float(value)


def text(name: str, value: Any) -> str:
    check(isinstance(value, str), name, value, "must be text")
    return str(value)


def known_keys(table: Iterable[str], keys: Iterable[str], where: str = "") -> None:
    known = tuple(keys)
    for key in table:
        if key not in known:
            raise InvalidInput(f"{where}unknown key {key!r}; known are {', '.join(known)}")
