"""How likely the model finds a prompt: which positions are still to be told of, and what was told so far."""

from collections.abc import Sequence

import numpy as np

from engine.trace.column import Array

LOGITS = 128 << 20  # bytes that the logits of the positions told of in one step may take, in float32


class PromptScores:
    """Of a prompt of `tokens`, of all but the first: the log-probability given those before it, `logprobs` float32
    `[tokens - 1]`, and the likeliest there, `alternatives` int32 and `alternative_logprobs` float32
    `[tokens - 1, asked]`.

    Invariant: the tokens before the `known`-th are told of, and each once, however often they are computed. `most`:
    positions that one step may tell of, so that their logits do not fill the memory.
    """

    def __init__(self, tokens: Sequence[int], asked: int, vocabulary: int) -> None:
        self.tokens, self.asked = tuple(tokens), min(asked, vocabulary)
        self.most = max(1, LOGITS // (4 * vocabulary))
        self.known = 1
        told = len(tokens) - 1
        self.logprobs = np.empty(told, np.float32)
        self.alternatives = np.empty((told, self.asked), np.int32)
        self.alternative_logprobs = np.empty((told, self.asked), np.float32)

    @property
    def whole(self) -> bool:
        return self.known >= len(self.tokens)

    def wanted(self, first: int, count: int) -> range:
        """Of the positions [first, first + count), those whose logits are wanted: each tells of the token after it."""
        return range(max(first, self.known - 1), min(first + count, len(self.tokens) - 1))

    def tell(self, positions: range, logprobs: Array, alternatives: Array, theirs: Array) -> None:
        """What came of these positions; of the alternatives there may be more than were asked for. Where the step was
        lost that was to tell of those before, all are told of by whoever computes the prompt next."""
        if positions.start >= self.known:
            return
        at = slice(positions.start, positions.stop)
        self.logprobs[at] = logprobs
        self.alternatives[at], self.alternative_logprobs[at] = alternatives[:, : self.asked], theirs[:, : self.asked]
        self.known = max(self.known, positions.stop + 1)
