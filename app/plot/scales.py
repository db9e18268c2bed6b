"""Where axes end, what stands at their ticks, and how that is written. No Qt in here."""

import math
from collections.abc import Sequence
from decimal import Decimal

from app.language import digits

NICE = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
FINE = (*NICE, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 200, 256, 320, 400, 512, 640, 1024)  # of KB, MB, GB


def nice_top(value: float, steps: Sequence[float] = NICE, slack: float = 1e-9) -> float:
    """The smallest pleasant number that is not below `value`: one of `steps`, which end with 10, times a power of ten.
    So much of it as `slack` may be cut off."""
    if not value > 0 or not math.isfinite(value):
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in steps if step * scale >= value * (1 - slack))


def nice_bytes(value: float) -> float:
    """The smallest pleasant number of KB, MB or GB that is not below `value`."""
    unit = 1024.0 ** max(0, math.floor(math.log(max(value, 1.0), 1024)))
    return nice_top(value / unit) * unit


def nice_pool(value: float) -> float:
    """The smallest round number of bytes that is not below `value`, in finer steps than `nice_bytes` has."""
    unit = 1024.0 ** max(0, math.floor(math.log(max(value, 1.0), 1024)))
    return next(step * unit for step in FINE if step * unit >= value * (1 - 1e-9)) if value > 0 else 1.0


def nice_end(seconds: float) -> float:
    """The end of an axis that shows so many seconds: the next fifth of its power of ten, "31.2" on one to 32."""
    if not seconds > 0 or not math.isfinite(seconds):
        return 10.0
    step = Decimal(10) ** math.floor(math.log10(seconds)) / 5
    return float(math.ceil(Decimal(repr(seconds)) / step) * step)


def time_ticks(begin: float, end: float, count: float) -> list[tuple[float, str]]:
    """At most about `count` round seconds in `[begin, end]`, each with its words: "0 s", "2.5 s"."""
    least = (end - begin) / max(count, 1.0)
    power = math.floor(math.log10(least))
    step = next(m * Decimal(10) ** (power + p) for p in (0, 1) for m in (1, 2, 5) if m * 10.0 ** (power + p) >= least)
    decimals = max(0, -int(step.normalize().as_tuple().exponent))
    first, last = math.ceil(Decimal(repr(begin)) / step), math.floor(Decimal(repr(end)) / step)
    return [(float(i * step), digits(f"{float(i * step):,.{decimals if i else 0}f} s")) for i in range(first, last + 1)]


def decade_ticks(low: float, high: float) -> list[float]:
    """The powers of ten between two exponents; with their double and fivefold where those are few."""
    steps = (1, 2, 5) if high - low < 2.5 else (1,)
    values = [step * 10.0**exponent for exponent in range(math.floor(low), math.ceil(high) + 1) for step in steps]
    return [value for value in values if low - 1e-9 <= math.log10(value) <= high + 1e-9]


def tick_words(value: float) -> str:
    """ "0", "150", "2.5k"."""
    return digits(f"{value:,.10g}" if value < 10_000 else f"{value / 1000:,.10g}k")


def axis_words(seconds: float) -> str:
    """A tick of an axis of seconds: "0", "20 ms", "1.5 s"."""
    if not seconds:
        return "0"
    return digits(f"{seconds * 1000:,.3g} ms" if seconds < 0.9995 else f"{seconds:,.3g} s")
