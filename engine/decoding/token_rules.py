"""What a request asks of its logits, in the token ids of its model."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from engine.config.checks import InvalidInput
from engine.config.sampling_params import SamplingParams

MOST_BANNED = 1024  # sequences: each is looked for before every token

Encode = Callable[[str], list[int]]  # without special tokens


@dataclass(frozen=True, slots=True)
class TokenRules:
    """`banned` are sequences that are never completed; `ends` are the tokens that may not come before `min_tokens`
    others; `bias` is added to tokens' logits, `frequency` and `presence` are the penalties' sizes."""

    banned: tuple[tuple[int, ...], ...] = ()
    ends: tuple[int, ...] = ()
    min_tokens: int = 0
    bias: tuple[tuple[int, float], ...] = ()
    frequency: float = 0.0
    presence: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether it matters how often the answer has a token."""
        return bool(self.frequency or self.presence)


def token_rules(params: SamplingParams, encode: Encode, eos: Collection[int], vocabulary: int) -> TokenRules | None:
    """The rules of a request, None where it has none. Raises InvalidInput for tokens that the model has not."""
    for token, _ in params.logit_bias:
        if token >= vocabulary:
            raise InvalidInput(f"logit_bias: token id {token} is not in [0, {vocabulary})")
    waits = params.min_tokens and not params.ignore_eos
    rules = TokenRules(
        banned_sequences(params.bad_words, encode),
        tuple(sorted(eos)) if waits else (),
        params.min_tokens if waits else 0,
        params.logit_bias,
        params.frequency_penalty,
        params.presence_penalty,
    )
    return None if rules == TokenRules() else rules


def banned_sequences(words: Collection[str], encode: Encode) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word as it begins a text and as it follows a space, which are others in most vocabularies.
    (vLLM's `bad_words` leaves the second out where it is of another length, and so lets most short words through.)"""
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        plain = tuple(encode(word))
        spaced = tuple(encode(" " + word.lstrip()))
        if not plain:
            raise InvalidInput(f"bad_words={word!r}: the tokenizer has no tokens for it")
        found[plain] = None
        if spaced[-len(plain) :] != plain:  # else it is banned with the other
            found[spaced] = None
    if len(found) > MOST_BANNED:
        raise InvalidInput(f"bad_words: {len(found):,} sequences of tokens; at most {MOST_BANNED:,} are looked for")
    return tuple(found)
