"""One prompt's life (Request) and one continuation of it (Branch)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from engine.config import SamplingParams
from engine.decoding.output import Output
from engine.trace.records import FinishReason


class Life(Enum):
    WAITING = auto()
    RUNNING = auto()
    PREEMPTED = auto()
    FINISHED = auto()


@dataclass(slots=True, eq=False)
class Branch:
    """One continuation: its tokens, how far they are computed, and the blocks that hold their K and V.

    tokens[:computed] have their K and V in (or launched into) the cache. `in_flight` tokens are being sampled by
    steps not yet committed, so the branch's length is len(tokens) + in_flight. `steps` counts the launched steps that
    name this branch: its blocks and slot go back only at zero.
    """

    request: Request
    tokens: list[int]
    output: Output
    index: int = 0
    computed: int = 0
    in_flight: int = 0
    steps: int = 0
    slot: int = -1
    blocks: list[int] = field(default_factory=list)

    @property
    def generated(self) -> int:
        """Tokens beyond the prompt, those in flight included."""
        return len(self.tokens) + self.in_flight - self.request.prompt_length

    @property
    def remaining(self) -> int:
        """Tokens of the branch whose K and V are not launched yet."""
        return len(self.tokens) + self.in_flight - self.computed

    @property
    def decoding(self) -> bool:
        """True when only the newest generated token is left to compute."""
        return self.remaining == 1 and self.generated > 0


@dataclass(slots=True, eq=False)
class Request:
    """A prompt and how to continue it. `limit` is the most tokens it may generate, never more than fit its context."""

    id: int
    prompt_length: int
    params: SamplingParams
    limit: int
    seed: int
    life: Life = Life.WAITING
    reason: FinishReason | None = None
    error: str = ""
    branches: list[Branch] = field(default_factory=list)

    @property
    def branch(self) -> Branch:
        return self.branches[0]

    @property
    def finished(self) -> bool:
        return self.life is Life.FINISHED
