"""Mean and percentiles of a sample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from engine.trace.records import Array


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of a sample; all zero when it is empty."""

    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float] | Array) -> Spread:
        sample = values if isinstance(values, np.ndarray) else np.fromiter(values, float)
        if not len(sample):
            return cls()
        p50, p95, p99 = np.percentile(sample, (50, 95, 99))
        return cls(float(sample.mean()), float(p50), float(p95), float(p99))
