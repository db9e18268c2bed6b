"""The buckets of histograms, as vLLM has them; seconds unless said."""

from collections.abc import Sequence

import numpy as np

from engine.trace.column import Array

SOON = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75]
TTFT = [*SOON, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560]
TOKEN = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
REQUEST = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]
STEP_TOKENS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
SAMPLES = [1, 2, 5, 10, 20]


def counts_to(most: int) -> list[float]:
    """Of tokens: 1, 2, 5, 10, 20 ... to `most`."""
    found, power = [], 1
    while power <= most:
        found += [float(power * digit) for digit in (1, 2, 5) if power * digit <= most]
        power *= 10
    return found


class Buckets:
    """A histogram: how many values lie at or under each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = np.array(bounds, float)
        self.counts: Array = np.zeros(len(bounds) + 1, np.int64)
        self.sum = 0.0

    def add(self, *values: float) -> None:
        if values:
            places = np.searchsorted(self.bounds, values)
            np.add.at(self.counts, places, 1)
            self.sum += float(sum(values))

    @property
    def cumulative(self) -> list[tuple[str, float]]:
        """As Prometheus has them."""
        names = [*(repr(float(bound)) for bound in self.bounds), "+Inf"]
        return list(zip(names, np.cumsum(self.counts).astype(float).tolist()))
