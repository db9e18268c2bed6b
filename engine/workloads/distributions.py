"""What is drawn by chance, from a seed: how many tokens a text has, and when requests come in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any

from engine.config.checks import InvalidInput, number, one_of, shown, whole

MOST_TOKENS = 10_000_000
ARRIVALS = {
    "at once": "all at time 0",
    "constant": "one every 1/rate seconds",
    "poisson": "independent of each other, rate a second on average",
    "gamma": "as Poisson with a burstiness: below 1 in bursts, above 1 more evenly",
}


def tokens(key: str, value: object, low: int = 1) -> int:
    """A number of tokens, else InvalidInput."""
    return whole(key, value, low, MOST_TOKENS)


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of token counts in [least, most].

    "fixed": always `middle`. "uniform": whole numbers from middle·(1 − spread) to middle·(1 + spread), as `vllm bench
    serve` with --random-range-ratio. "lognormal": `middle` is the median and `spread` the sigma of the logarithm,
    clipped to [least, most].
    """

    kind: str
    middle: int
    spread: float = 0.0
    least: int = 1
    most: int = MOST_TOKENS

    def draw(self, rng: Random) -> int:
        match self.kind:
            case "uniform":
                lowest = max(self.least, math.floor(self.middle * (1 - self.spread)))
                drawn = rng.randint(lowest, math.ceil(self.middle * (1 + self.spread)))
            case "lognormal":
                drawn = round(min(self.middle * math.exp(rng.gauss(0.0, self.spread)), MOST_TOKENS))
            case _:
                drawn = self.middle
        return min(max(drawn, self.least), self.most)


_LENGTH_KEYS = {"fixed": {"tokens"}, "uniform": {"mean", "spread"}, "lognormal": {"median", "sigma", "min", "max"}}


def read_lengths(key: str, value: Any) -> Lengths:
    """Lengths as a file writes them. Raises InvalidInput.

    64 · {uniform = {mean = 64, spread = 0.5}} · {lognormal = {median = 40, sigma = 1.0, min = 4, max = 400}}
    """
    if isinstance(value, Lengths):
        return value
    if not isinstance(value, dict):
        return Lengths("fixed", tokens(key, value))
    kind, table = next(iter(value.items())) if len(value) == 1 else ("", None)
    if kind not in ("uniform", "lognormal") or not isinstance(table, dict):
        raise InvalidInput(
            f"{key}={shown(value)}: give a number of tokens, {{uniform = {{mean = 64, spread = 0.5}}}} or "
            "{lognormal = {median = 40, sigma = 1.0, min = 4, max = 400}}"
        )
    known = _LENGTH_KEYS[kind]
    for name in table:
        if name not in known:
            raise InvalidInput(f"{key}.{kind}: unknown key {name!r}; use {', '.join(sorted(known))}")
    if kind == "uniform":
        mean = tokens(f"{key}.mean", table.get("mean"))
        spread = number(f"{key}.spread", table.get("spread"), 0.0, 1.0, "must be from 0 to 1, e.g. 0.5 for ± 50 %")
        return Lengths("uniform", mean, spread)
    median = tokens(f"{key}.median", table.get("median"))
    sigma = number(f"{key}.sigma", table.get("sigma"), 0.0, 10.0, "must be from 0 to 10; 1 is a heavy tail")
    least = tokens(f"{key}.min", table.get("min", 1))
    return Lengths("lognormal", median, sigma, least, tokens(f"{key}.max", table.get("max"), least))


@dataclass(frozen=True, slots=True)
class Times:
    """When requests come in: the first at `start` seconds, the others by `kind`, `rate` a second on average.

    "gamma" draws the gaps from a gamma distribution of shape `burstiness` and mean 1/rate, as `vllm bench serve` does;
    burstiness 1 is Poisson. An infinite rate is all at once.
    """

    kind: str = "at once"
    rate: float = math.inf
    burstiness: float = 1.0
    start: float = 0.0

    def __post_init__(self) -> None:
        one_of("arrivals", self.kind, ARRIVALS)
        number("rate", self.rate, 1e-6, math.inf, "must be above 0 requests a second; inf is all at once")
        number("burstiness", self.burstiness, 1e-3, 1e6, "must be above 0; 1 is Poisson, below 1 comes in bursts")
        number("start", self.start, 0.0, 86_400.0, "must be from 0 to 86,400 seconds")
        if self.kind != "at once" and math.isinf(self.rate):
            raise InvalidInput(f'rate: arrivals="{self.kind}" needs one, in requests a second, e.g. rate=4')
        if self.kind != "gamma" and self.burstiness != 1.0:
            raise InvalidInput(f'burstiness={self.burstiness!r}: means something only with arrivals="gamma"')

    def draw(self, count: int, rng: Random) -> list[float]:
        """`count` times in seconds, rising."""
        mean = 0.0 if self.kind == "at once" else 1 / self.rate
        if self.kind in ("at once", "constant"):
            return [self.start + i * mean for i in range(count)]
        shape = self.burstiness if self.kind == "gamma" else 1.0
        gaps = (rng.gammavariate(shape, mean / shape) for _ in range(count - 1))
        return list(accumulate(gaps, initial=self.start))[:count]

    def with_(self, kind: str | None, rate: float | None, burstiness: float | None) -> Times:
        """A copy with what is given changed: a rate makes "at once" Poisson, a burstiness makes it gamma."""
        if kind is None:
            kind = self.kind
            if rate is not None and math.isinf(rate):
                kind = "at once"
            elif burstiness is not None and burstiness != 1.0:
                kind = "gamma"
            elif rate is not None and kind == "at once":
                kind = "poisson"
        rate = self.rate if rate is None else rate
        if kind == "at once":
            rate = math.inf
        if burstiness is None:
            burstiness = self.burstiness if kind == "gamma" else 1.0
        return Times(kind, rate, burstiness, self.start)
