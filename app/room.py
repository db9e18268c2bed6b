"""Whether memory holds a model beside the one that is loaded. No torch, no Qt; may block on disk."""

from __future__ import annotations

from dataclasses import dataclass

from app.estimate import empty, estimate
from engine import InvalidInput, ModelSpec

RUNTIME = 600 << 20  # bytes that an engine's process takes besides weights and pool


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that a model needs, 0 where that is not known beforehand, and bytes that are free."""

    needed: int
    free: int

    @property
    def enough(self) -> bool:
        return self.needed <= self.free


def room_beside(spec: ModelSpec) -> Room:
    """What `spec` takes, and what is free with everything that is loaded now. A model of which nothing is known before
    it is fetched takes its chance beside the one there is."""
    try:
        found = estimate(spec)
    except (InvalidInput, OSError):
        return Room(0, empty(spec.device).free)
    return Room(found.weights + RUNTIME, found.free)
