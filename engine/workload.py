"""Workloads: prompts with arrival times, the same list for every mode. Templates and prompt files make them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path

from engine.config import InvalidInput, Prompt, SamplingParams

_CHOICE = re.compile(r"\{([^{}|]*(?:\|[^{}|]*)+)\}")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One prompt and the second, from the run's start, at which it comes in."""

    time: float
    prompt: Prompt
    params: SamplingParams = field(default_factory=SamplingParams)
    label: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """A named list of arrivals in order of time."""

    name: str
    arrivals: tuple[Arrival, ...]

    def __len__(self) -> int:
        return len(self.arrivals)

    @classmethod
    def at_once(cls, name: str, prompts: Iterable[Prompt], params: SamplingParams | None = None) -> Workload:
        """All prompts at time 0."""
        params = params or SamplingParams()
        return cls(name, tuple(Arrival(0.0, p, params) for p in prompts))

    def with_params(self, params: SamplingParams) -> Workload:
        """The same prompts and times with other sampling."""
        return replace(self, arrivals=tuple(replace(a, params=params) for a in self.arrivals))


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


def read_prompts(path: Path) -> list[str]:
    """The prompts of a text file, one a line, empty lines left out. Raises InvalidInput with the line that is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read the prompt file {path}: {error.strerror}; check the path") from error
    lines = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"{path}, line {number}, byte {error.start + 1}: not UTF-8; save the file as UTF-8 and try again"
            ) from error
    prompts = [line for line in lines if line.strip()]
    if not prompts:
        raise InvalidInput(f"the prompt file {path} has no prompts; write one a line")
    return prompts


DEMO_TEMPLATE = (
    "Tell me a story about a {fox|whale|dragon|robot|penguin|wizard|turtle|mouse} "
    "and a {lantern|violin|kite|piano|boat|map|clock|rose}."
)


def demo_workload(count: int = 64, params: SamplingParams | None = None) -> Workload:
    """`count` story prompts for the demo model, as chats, all at once."""
    params = params or SamplingParams(max_tokens=200, temperature=0.8, top_p=0.95)
    prompts: list[Prompt] = [[{"role": "user", "content": text}] for text in expand_template(DEMO_TEMPLATE, count)]
    return Workload.at_once("demo stories", prompts, params)
