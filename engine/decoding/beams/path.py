"""A continuation of a prompt, as a chain of tokens to its root."""

from __future__ import annotations

from collections.abc import Iterable

Ranked = tuple[tuple[int, float], ...]  # tokens with their log-probabilities, likeliest first


class Path:
    """What follows `parent` by one token. `total` is the sum of the log-probabilities of its `length` tokens; the root
    has none. `ranked` are the likeliest tokens in its own token's place. `stem` is its first part beyond what a search
    holds for certain, None where there is none."""

    __slots__ = ("length", "logprob", "parent", "ranked", "stem", "token", "total")

    def __init__(self, parent: Path | None = None, token: int = -1, logprob: float = 0.0, ranked: Ranked = ()) -> None:
        self.parent, self.token, self.logprob, self.ranked = parent, token, logprob, ranked
        self.stem: Path | None = (parent.stem or self) if parent is not None else None
        self.length: int = parent.length + 1 if parent is not None else 0
        self.total: float = parent.total + logprob if parent is not None else 0.0

    def after(self, length: int) -> list[Path]:
        """Its parts beyond the first `length` tokens, in order; the last is itself."""
        parts: list[Path] = []
        part = self
        while part.length > length:
            parts.append(part)
            assert part.parent is not None
            part = part.parent
        return parts[::-1]

    @property
    def tokens(self) -> list[int]:
        return [part.token for part in self.after(0)]


def common(paths: Iterable[Path]) -> Path:
    """The longest beginning that all of them share."""
    front = set(paths)
    while len(front) > 1:
        longest = max(path.length for path in front)
        front = {path.parent if path.length == longest and path.parent else path for path in front}
    return front.pop()
