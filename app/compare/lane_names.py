"""Lanes' names where there is little room: what tells them apart is what stays. No Qt in here."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence

_PART = re.compile(r"(?= · | \+ | \(\d+\)$)")  # of "continuous · 64 · tp 2 + prefix", "static · 8 (2)"


def short_names(names: Sequence[str]) -> tuple[str, ...]:
    """Each without the parts that all lanes of its mode have: "continuous · 64", "continuous · 64 · tp 2" are
    "continuous", "continuous · tp 2". Names that differ still do."""
    split = [_PART.split(name) for name in names]
    alike = defaultdict[str, list[set[str]]](list)
    for mode, *parts in split:
        alike[mode].append(set(parts))
    common = {mode: set.intersection(*parts) for mode, parts in alike.items()}
    short = tuple(mode + "".join(part for part in parts if part not in common[mode]) for mode, *parts in split)
    return short if len(set(short)) == len(set(names)) else tuple(names)


def fitting(name: str, fits: Callable[[str], bool]) -> str:
    """The name, or as much of its mode as there is room for before what tells it apart: "conti… · tp 2"."""
    mode, *parts = _PART.split(name)
    rest = "".join(parts)
    cuts = (f"{mode[:length].rstrip()}…{rest}" for length in range(len(mode) - 1, 0, -1))
    return next((words for words in (name, *cuts) if fits(words)), rest.lstrip(" ·+") or name)
