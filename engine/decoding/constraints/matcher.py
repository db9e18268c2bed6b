"""Where one branch stands in its grammar, and the tokens that may come next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from llguidance import LLMatcher

Bits = NDArray[np.int32]
SHARED = 1 << 15  # words from which several threads take less time than they take to be woken


class Matcher:
    """Follows the tokens of a branch: its state is a function of them, whatever else becomes of the branch.

    `words` are the int32 words that the library writes for a mask: of the model's vocabulary, or more where the
    tokenizer has more tokens than the model.
    """

    __slots__ = ("_consume", "_machine", "_stopped", "fault", "words")

    def __init__(self, machine: LLMatcher, words: int) -> None:
        self._machine, self.words = machine, words
        self._consume, self._stopped = machine.consume_token, machine.is_stopped  # asked for every token
        self.fault = ""  # why it cannot go on

    def advance(self, token: int) -> bool:
        """Takes the next token. False where the grammar has none such, or gave up; `fault` says so."""
        if self._consume(token):
            return not self.fault
        self.fault = first_line(self._machine.get_error())
        return False

    @property
    def ended(self) -> bool:
        """True when nothing can follow but an end of text."""
        return bool(self._stopped())


def allowed_bits(matchers: Sequence[Matcher], vocabulary: int) -> Bits:
    """The tokens that may come next, int32 `[matchers, words of 32 tokens]`, token 0 the lowest bit of the first: no
    bit at all where a matcher has given up. All of one model. Python's lock is free meanwhile."""
    words, wide = -(-vocabulary // 32), matchers[0].words
    bits = np.zeros((len(matchers), wide), np.int32)
    if bits.size < SHARED:
        at = bits.ctypes.data
        for row, matcher in enumerate(matchers):
            matcher._machine.unsafe_compute_mask_ptr(at + 4 * wide * row, 4 * wide)
    else:
        machines = [(matcher._machine, row) for row, matcher in enumerate(matchers)]
        _executor().unsafe_compute_mask_ptr(machines, bits.ctypes.data, 4 * wide, len(matchers))
    bits = bits[:, :words]
    if vocabulary % 32:
        bits[:, -1] &= (1 << vocabulary % 32) - 1
    for row, matcher in enumerate(matchers):
        if matcher._machine.is_error():
            matcher.fault = matcher.fault or first_line(matcher._machine.get_error())
            bits[row] = 0
    return bits


def first_line(message: str) -> str:
    return message.strip().partition("\n")[0]


@cache
def _executor() -> Any:
    """The library's threads, made with the first step that they are worth: not where children are forked."""
    from llguidance import LLExecutor

    return LLExecutor()
