"""How far a load has come, and its cancellation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """`stage` in words; `done` of `total` bytes, or captures of graphs; total 0 while it is not known."""

    stage: str
    done: int = 0
    total: int = 0


class LoadCancelled(Exception):
    """A load was cancelled by the person who began it; nothing of it is left."""
