"""Which replica a request goes to, and why: a pure function of what is known of them."""

from collections.abc import Sequence
from typing import NamedTuple

CROWD = 4  # a prefix draws requests to its replica until it has a slot in so many more of them than the emptiest


class Candidate(NamedTuple):
    """A replica that lives: samples that it has (`open`), of which so many wait; its slots and free blocks; and how
    many of the prompt's tokens are in its cache (`found`)."""

    place: int
    open: int
    waiting: int
    slots: int
    free_blocks: int
    found: int = 0

    @property
    def load(self) -> float:
        return (self.open + self.waiting) / max(1, self.slots)


class Choice(NamedTuple):
    place: int
    why: str


def choose(candidates: Sequence[Candidate]) -> Choice:
    """Where the longest prefix is, unless that replica is loaded: samples wait there, or it has over a quarter of its
    slots more in use than the emptiest one. Then, or where no prefix is known, the emptiest; of several the one with
    the most free blocks."""
    least = min(candidates, key=lambda c: (c.load, -c.free_blocks, c.place))
    said = f"the emptiest: {least.open} open, {least.free_blocks} blocks free"
    best = max(candidates, key=lambda c: (c.found, -c.load, -c.place))
    if not best.found or best.found <= least.found:
        if least.found:
            return Choice(least.place, f"{least.found} tokens of its prefix are there, and it is the emptiest")
        return Choice(least.place, said)
    if best.waiting or best.load > least.load + 1 / CROWD:
        return Choice(least.place, f"{said}; {best.found} tokens of its prefix are at {best.place}, which is loaded")
    return Choice(best.place, f"{best.found} tokens of its prefix are there")
