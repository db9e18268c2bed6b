"""A cache that forgets: of an answer that goes on, only its beginning and its newest tokens stay."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config.specs import EngineConfig
from engine.scheduler.block_pool import blocks_for

NOTHING = range(0)


@dataclass(frozen=True, slots=True)
class KvWindow:
    """What Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks", keep, by whole blocks of
    `size` tokens: those of the first `sinks` and of the last `recent` before the one that is being filled.

    A prompt is read whole. With the first block behind the one in which the answer begins that is more than that, and
    with every one after it, what lies between is forgotten. So what a token attends to depends on its position and the
    prompt's length alone: not on how steps were planned, on preemption or on drafts. Keys keep their positions.

    Whoever forgets has no step in flight but that of the token before, which writes to a block that stays.
    """

    sinks: int
    recent: int
    size: int

    @classmethod
    def of(cls, config: EngineConfig) -> KvWindow | None:
        """The config's; None where nothing is forgotten."""
        if config.kv_window is None:
            return None
        size = config.block_size
        return cls(config.sink_tokens // size, blocks_for(config.kv_window, size), size)

    def begins(self, prompt: int) -> int:
        """The first position whose token does not see all before it, after a prompt of so many tokens."""
        return max(blocks_for(prompt + 1, self.size), self.sinks + self.recent + 1) * self.size

    def gone(self, prompt: int, position: int) -> range:
        """The places of its table whose blocks are forgotten when the token at a position is computed."""
        if position < self.begins(prompt):
            return NOTHING
        return range(self.sinks, position // self.size - self.recent)

    def alike(self, prompt: int, position: int) -> int:
        """How many tokens from a position on see the same blocks, those being filled included; at least 1."""
        begins = self.begins(prompt)
        return begins - position if position < begins else self.size - position % self.size

    def most(self, prompt: int, tokens: int) -> int:
        """The blocks that a request holds at most, that grows to so many tokens."""
        return blocks_for(min(tokens, self.begins(prompt)), self.size)
