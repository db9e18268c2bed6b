"""Values that another process can read, whatever it has imported."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from engine.config.checks import InvalidInput, shown

PLAIN = (int, str, float, bool, type(None))


def plain(name: str, value: Any) -> Any:
    """The value with the types of the language in place of their subclasses, an enum's members say, through sequences,
    mappings and dataclasses. Raises InvalidInput for any other."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, (list, tuple)):
        if set(map(type, value)) <= {int}:
            return value
        return (tuple if isinstance(value, tuple) else list)(plain(name, part) for part in value)
    if isinstance(value, Mapping):
        return {plain(name, key): plain(name, part) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: plain(f.name, getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    raise InvalidInput(f"{name}={shown(value)}: must be text, numbers, lists and mappings of them")
