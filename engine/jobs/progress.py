"""How far a load has come, and its cancellation."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """`stage` in words; `done` of `total` bytes, or captures of graphs; total 0 while it is not known.
    `part`: what there is of the result so far, as JSON, where the work tells it before its end."""

    stage: str
    done: int = 0
    total: int = 0
    part: dict[str, Any] | None = None


class LoadCancelled(Exception):
    """A load was cancelled by the person who began it; nothing of it is left."""
