"""What a request's rules allow, worked out from scratch: transformers' processors where it has them, a search through
all tokens' texts where it has not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import regex
import torch
from torch import Tensor
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from engine import SamplingParams
from engine.decoding.constraints.matcher import Bits
from engine.decoding.detokenizer import ByteLevelVocabulary


def tokens_of(bits: Bits) -> list[list[int]]:
    """The tokens of each row of bits."""
    rows = np.unpackbits(np.ascontiguousarray(bits).view(np.uint8), axis=1, bitorder="little")
    return [np.flatnonzero(row).tolist() for row in rows]


class Rules:
    """The rules of one request as a function from its tokens and logits to others. `banned`: its bad words' tokens."""

    def __init__(
        self,
        params: SamplingParams,
        eos: int,
        banned: Sequence[Sequence[int]] = (),
        vocabulary: ByteLevelVocabulary | None = None,
    ) -> None:
        self._params, self._eos, self._banned, self._vocabulary = params, eos, [list(b) for b in banned], vocabulary
        self._pattern = "|".join(map(regex.escape, params.choices)) or params.regex

    def __call__(self, prompt: Sequence[int], said: Sequence[int], logits: Tensor) -> Tensor:
        """The logits `[vocabulary]` of the token after `said`."""
        params, ids = self._params, torch.tensor([[*prompt, *said]])
        x = logits[None].float().clone()
        if self._pattern:
            x[0, ~self.allowed(said, x.shape[-1])] = -torch.inf
        if self._banned:
            x = NoBadWordsLogitsProcessor(self._banned)(ids, x)
        if params.min_tokens:
            x = MinNewTokensLengthLogitsProcessor(len(prompt), params.min_tokens, self._eos)(ids, x)
        if params.logit_bias:
            x = SequenceBiasLogitsProcessor([[[token], float(bias)] for token, bias in params.logit_bias])(ids, x)
        if params.repetition_penalty != 1.0:
            x = RepetitionPenaltyLogitsProcessor(params.repetition_penalty)(ids, x)
        for token, count in Counter(said).items():
            x[0, token] -= params.frequency_penalty * count + params.presence_penalty
        return x[0]

    def allowed(self, said: Sequence[int], vocabulary: int) -> Tensor:
        """The tokens after which the pattern can still be met, or that end it, `[vocabulary]`."""
        assert self._vocabulary is not None
        assert self._pattern is not None
        text = b"".join(self._vocabulary[token] for token in said).decode()
        found = torch.zeros(vocabulary, dtype=torch.bool)
        for token in range(vocabulary):
            try:
                piece = self._vocabulary[token].decode()
            except UnicodeDecodeError:
                continue
            found[token] = bool(piece) and bool(regex.fullmatch(self._pattern, text + piece, partial=True))
        found[self._eos] = bool(regex.fullmatch(self._pattern, text))
        return found
