"""Workloads: prompts with arrival times, the same list for every mode. `engine.workloads` makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from math import isfinite

from engine.config.checks import check, whole
from engine.config.sampling_params import SamplingParams
from engine.config.submission import Prompt


@dataclass(frozen=True, slots=True)
class Arrival:
    """One prompt and the second, from the run's start, at which it comes in."""

    time: float
    prompt: Prompt
    params: SamplingParams = field(default_factory=SamplingParams)
    label: str = ""

    def __post_init__(self) -> None:
        check(isfinite(self.time) and self.time >= 0, "time", self.time, "must be a number of seconds of at least 0")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What a race over a workload may start from: `kv_tokens` in every lane's KV pool, and lanes such as "static:8"."""

    kv_tokens: int | None = None
    lanes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """A named list of arrivals in order of time.

    At most `concurrency` requests are open at once, a limit of the client (None: no limit). `description` is a
    sentence for people. `estimated`: the prompts' lengths were counted in words, since the model's tokenizer was not
    at hand.
    """

    name: str
    arrivals: tuple[Arrival, ...]
    concurrency: int | None = None
    description: str = ""
    title: str = ""
    suggested: Suggestion = field(default_factory=Suggestion)
    estimated: bool = False

    def __post_init__(self) -> None:
        if self.concurrency is not None:
            limit = "must be a whole number of at least 1; leave it out for no limit"
            whole("concurrency", self.concurrency, rule=limit)
        object.__setattr__(self, "arrivals", tuple(sorted(self.arrivals, key=lambda a: a.time)))

    def __len__(self) -> int:
        return len(self.arrivals)

    @classmethod
    def at_once(cls, name: str, prompts: Iterable[Prompt], params: SamplingParams | None = None) -> Workload:
        """All prompts at time 0."""
        params = params or SamplingParams()
        return cls(name, tuple(Arrival(0.0, p, params) for p in prompts))

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of those that its requests go through, in the order in which they first come."""
        return tuple(dict.fromkeys(a.params.adapter for a in self.arrivals if a.params.adapter))

    def through(self, names: Sequence[str]) -> Workload:
        """Each request that names no adapter through one of these, in turn; "" for the model as it is."""
        if not names:
            return self
        turns = cycle(names)
        arrivals = (
            a if a.params.adapter else replace(a, params=a.params.with_(adapter=next(turns))) for a in self.arrivals
        )
        return replace(self, arrivals=tuple(arrivals))

    def with_params(self, params: SamplingParams) -> Workload:
        """The same prompts and times with other sampling."""
        return replace(self, arrivals=tuple(replace(a, params=params) for a in self.arrivals))
