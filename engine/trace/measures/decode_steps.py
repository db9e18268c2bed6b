"""The steady part of a run: steps in which every row decodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.trace.records import Kind, Step


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one step: from start to end, inside the model's forward, and to the start of the next step."""

    step: float
    forward: float
    period: float

    @property
    def outside(self) -> float:
        """The share of the period that is not the model's forward."""
        return (self.period - self.forward) / self.period


def decode_steps(steps: Sequence[Step], batch: int) -> list[Timing]:
    """The timings of each decode step of `batch` rows that is followed by another."""

    def full(step: Step) -> bool:
        return step.rows == batch and bool((step.kind == Kind.DECODE).all())

    return [
        Timing(step.ended - step.started, step.seconds["forward"], following.started - step.started)
        for step, following in pairwise(steps)
        if full(step) and full(following)
    ]
