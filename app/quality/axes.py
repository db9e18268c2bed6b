"""The axes of the quality charts: where a value lies, and what is written beside them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.plot.scales import decade_ticks, nice_top
from app.quality.words import perplexity_words
from app.words import bytes_words, number

SMALLEST = 1e-9  # nats: below, a divergence is drawn as none at all
Tick = tuple[float, str]  # its share of the axis, and what it says


@dataclass(frozen=True, slots=True)
class Axis:
    """Values between `low` and `high` over [0, 1]. Logarithmic ones have their zero apart, at 0."""

    low: float
    high: float
    ticks: tuple[Tick, ...]
    log: bool = False
    floor: float = 0.0  # share of the axis below `low`, where zero is

    def share(self, value: float) -> float:
        if not self.log:
            return (value - self.low) / (self.high - self.low)
        if value <= SMALLEST:
            return 0.0
        return self.floor + (1 - self.floor) * (math.log10(value) - self.low) / (self.high - self.low)


def across_axis(key: str, values: Sequence[float]) -> Axis:
    """From 0 to a pleasant number: of bytes in their own unit."""
    top = 1.06 * max(values, default=1.0)
    unit = 1.0
    if key == "weight_bytes":
        while top / unit >= 1000:
            unit *= 1024
    high = nice_top(top / unit) * unit
    words = bytes_words if key == "weight_bytes" else number
    return Axis(0.0, high, tuple((share, words(share * high) if share else "0") for share in (0.0, 0.5, 1.0)))


def divergence_axis(values: Sequence[float]) -> Axis:
    """Powers of ten around the values, and zero below them."""
    known = [math.log10(value) for value in values if value > SMALLEST]
    low, high = (min(known), max(known)) if known else (-3.0, -1.0)
    pad = max(0.12 * (high - low), 0.15)
    low, high, floor = low - pad, high + pad, 0.2
    axis = Axis(low, high, (), True, floor)
    marks = [10.0**n for n in range(math.ceil(low), math.floor(high) + 1)]
    if len(marks) < 2:
        marks = decade_ticks(low, high)
    every = -(-len(marks) // 4)
    return Axis(low, high, ((0.0, "0"), *((axis.share(v), f"{v:g}") for v in marks[::every])), True, floor)


def perplexity_axis(values: Sequence[float]) -> Axis:
    low, high = min(values, default=0.0), max(values, default=1.0)
    pad = max(0.12 * (high - low), 0.002 * high, 1e-6)
    low, high = low - pad, high + pad
    marks = ((0.0, low), (0.5, (low + high) / 2), (1.0, high))
    return Axis(low, high, tuple((share, perplexity_words(value)) for share, value in marks))
