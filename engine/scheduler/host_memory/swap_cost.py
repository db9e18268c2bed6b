"""What it costs to bring a preempted request back: from host memory, or by computing it again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SwapCost:
    """Seconds of both ways. With b blocks and t tokens that are not in the pool otherwise:

    - swapping them out and in again takes 2 (`call` + b `block`): a copy of b blocks takes `call` + b `block`, as was
      measured at load on this pool.
    - computing them again takes t `token` + t (2 p + t) / 2 `pair`, p tokens before them: each token multiplies with
      the weights, and attends to every one before it (what a window hides is counted too). `token` and `pair` are
      operations over the roof's operations a second (Kaplan et al. 2020, section 2.1; Dao 2023, section 4.1), so this
      is the least it can take.
    """

    call: float
    block: float
    token: float
    pair: float

    def swapping(self, blocks: int) -> float:
        """Seconds of both copies."""
        return 2 * (self.call + blocks * self.block)

    def recomputing(self, before: int, tokens: int) -> float:
        """Seconds of so many tokens after so many."""
        return tokens * self.token + tokens * (2 * before + tokens) / 2 * self.pair

    def favours_swap(self, blocks: int, before: int, tokens: int) -> bool:
        return self.swapping(blocks) < self.recomputing(before, tokens)
