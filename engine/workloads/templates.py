"""Templates: one line that stands for many prompts, "a {fox|owl} and a {kite|boat}"."""

import random
import re
from collections.abc import Sequence
from itertools import product
from math import prod

_CHOICE = re.compile(r"\{([^{}|]*(?:\|[^{}|]*)+)\}")

_OPEN = re.compile(r"\{[^{}|\n]*\|[^{}\n]*(?:\{|\n|$)")


def is_unclosed(template: str) -> bool:
    """Whether something that looks like a choice has no end, as "a {fox|owl", and so is none."""
    return bool(_OPEN.search(template))


def template_size(template: str) -> int:
    """How many different prompts a template such as "a {fox|owl} and a {kite|boat}" stands for."""
    return prod(len(m.split("|")) for m in _CHOICE.findall(template))


def expand_template(template: str, count: int, seed: int = 0) -> list[str]:
    """`count` prompts from a template; all different as long as there are enough, in an order fixed by the seed.

    `{a|b|c}` is a choice; braces without a bar are left as they are.
    """
    parts = _CHOICE.split(template)
    choices = [part.split("|") for part in parts[1::2]]
    size = prod(len(c) for c in choices)

    def filled(chosen: Sequence[str]) -> str:
        return "".join(text + (chosen[i] if i < len(chosen) else "") for i, text in enumerate(parts[::2]))

    rng = random.Random(seed)
    if size <= 100_000:
        everything = [filled(chosen) for chosen in product(*choices)]
        rng.shuffle(everything)
        return [everything[i % size] for i in range(count)]
    return [filled([rng.choice(c) for c in choices]) for _ in range(count)]
