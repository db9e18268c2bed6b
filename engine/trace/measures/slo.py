"""The limits a person sets on latency: a service level objective."""

from dataclasses import dataclass, fields
from math import isfinite

from engine.config.checks import check

SLO_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "p99 ITL", "e2e": "E2E latency"}


@dataclass(frozen=True, slots=True)
class Slo:
    """Seconds; None sets no limit. A request meets it with each of its TTFT, TPOT, 99th percentile of gaps between
    emissions, and E2E latency at or below the limit. Raises InvalidInput."""

    ttft: float | None = None
    tpot: float | None = None
    itl: float | None = None
    e2e: float | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            limit = getattr(self, f.name)
            ok = limit is None or (isfinite(limit) and limit > 0)
            check(ok, f"slo_{f.name}", limit, "must be a number of seconds above 0")

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    def text(self) -> str:
        """ "TTFT ≤ 500 ms, TPOT ≤ 25 ms"; empty without limits."""
        return ", ".join(f"{SLO_NAMES[name]} ≤ {seconds_text(limit)}" for name, limit in self.limits.items())


def seconds_text(seconds: float) -> str:
    """A time for people: "82.3 ms" below a second, "3.21 s" from there on."""
    return f"{seconds * 1e3:,.1f} ms" if abs(seconds) < 0.99995 else f"{seconds:,.2f} s"
