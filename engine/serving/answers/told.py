"""Tokens with their log-probabilities, as both forms tell them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

LEAST = -9999.0  # as OpenAI has it, for a token that the model would never say


class TokensTold(NamedTuple):
    """Of some tokens: the text of each by itself, its log-probability, those that were likely there, and where each
    one's text begins in the answer."""

    pieces: Sequence[str]
    logprobs: Sequence[float]
    alternatives: Sequence[Sequence[tuple[int, float, str]]]
    offsets: Sequence[int]

    def as_chat(self) -> dict[str, Any]:
        content = [
            {**_token(piece, logprob), "top_logprobs": [_token(text, value) for _, value, text in others]}
            for piece, logprob, others in zip(self.pieces, self.logprobs, self.alternatives, strict=True)
        ]
        return {"content": content, "refusal": None}

    def as_completion(self) -> dict[str, Any]:
        likely = [{text: max(value, LEAST) for _, value, text in others} for others in self.alternatives]
        return {
            "tokens": list(self.pieces),
            "token_logprobs": [max(value, LEAST) for value in self.logprobs],
            "top_logprobs": likely if any(likely) else None,
            "text_offset": list(self.offsets),
        }

    @classmethod
    def joined(cls, parts: Sequence["TokensTold"]) -> "TokensTold":
        return cls(
            [piece for part in parts for piece in part.pieces],
            [value for part in parts for value in part.logprobs],
            [others for part in parts for others in part.alternatives],
            [at for part in parts for at in part.offsets],
        )


def _token(piece: str, logprob: float) -> dict[str, Any]:
    """`bytes` are unknown of a token that is no whole character."""
    known = None if "\ufffd" in piece else list(piece.encode())
    return {"token": piece, "logprob": max(logprob, LEAST), "bytes": known}
