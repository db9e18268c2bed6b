"""Which tokens may come next in the rows of a step, found while the step is computed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

import numpy as np

from engine.decoding.constraints.matcher import Bits, Matcher, allowed_bits

APART = 1 << 10  # words from which finding them takes longer than waking a thread for it


class Masks:
    """Of the rows that are held to a grammar: `rows`, their places among those that draw, and which tokens may come
    next, found from here on. The matchers have seen every token but the one drawn now; nobody may touch them before
    the masks are there."""

    def __init__(self, rows: list[int], matchers: Sequence[Matcher], vocabulary: int) -> None:
        self.rows = rows
        self._found: tuple[Bits, list[int]] | None = None
        self._finding = None
        if len(matchers) * matchers[0].words < APART:
            self._found = _masks(matchers, vocabulary)
        else:
            self._finding = _thread().submit(_masks, matchers, vocabulary)

    @property
    def bits(self) -> Bits:
        """As `allowed_bits` gives them, by row; one without any bit has given up and ends."""
        return self._waited()[0]

    @property
    def counts(self) -> list[int]:
        """How many tokens are allowed, by row."""
        return self._waited()[1]

    def leave(self) -> None:
        """For who has no use for them any more: from here on the matchers may be touched."""
        if self._finding is not None:
            wait([self._finding])

    def _waited(self) -> tuple[Bits, list[int]]:
        if self._found is None:
            assert self._finding is not None
            self._found = self._finding.result()
        return self._found


def _masks(matchers: Sequence[Matcher], vocabulary: int) -> tuple[Bits, list[int]]:
    bits = allowed_bits(matchers, vocabulary)
    return bits, np.bitwise_count(bits.view(np.uint32)).sum(1).tolist()


@cache
def _thread() -> ThreadPoolExecutor:
    """One for all engines of a process, made with the first step that it is worth: not where children are forked."""
    return ThreadPoolExecutor(1, thread_name_prefix="grammars")
