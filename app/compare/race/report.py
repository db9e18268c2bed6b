"""A race that is over, in figures."""

from __future__ import annotations

from dataclasses import dataclass

from engine import Lane, Trace
from engine.compare import Agreement, Comparison, RaceResult, agreements, compare_race
from engine.trace import Slo


@dataclass(frozen=True, slots=True)
class Report:
    """A race in figures. `agreements` tells of each lane whether its tokens are the first one's, `other_weights`
    whether it had another model, quantization or precision, so that they need not be."""

    comparison: Comparison
    agreements: tuple[Agreement | None, ...]
    other_weights: tuple[bool, ...]

    @classmethod
    def of(cls, result: RaceResult, slo: Slo, price: float = 0.0) -> Report:
        first = [next(iter(result.traces(i)), None) for i in range(len(result.lanes))]
        held = [_weights(lane, trace) for lane, trace in zip(result.lanes, first, strict=True)]
        other = tuple(None not in (held[0], each) and each != held[0] for each in held)
        return cls(compare_race(result, slo, price), agreements(first), other)


def _weights(lane: Lane, trace: Trace | None) -> tuple[str, str | None, str, str] | None:
    """What the tokens come from: model, revision, quantization, precision; None where nobody knows."""
    if trace is None or trace.header.outside:
        return None
    card = trace.header.model
    return lane.spec.source, lane.spec.revision, card.quantization, card.dtype
