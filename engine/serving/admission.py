"""How much may be open at once: in all, and of one caller."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from engine.serving.errors import ApiError

RETRY_AFTER = 1  # seconds


class Admission:
    """Counts the samples that are open. On the event loop's thread alone."""

    def __init__(self, most: int, per_key: int | None) -> None:
        self.most, self.per_key = most, per_key
        self.open = 0
        self._of: Counter[str] = Counter()

    def take(self, caller: str, samples: int) -> None:
        """Places for so many. Raises ApiError: 429 where they must come later, 400 where they never could."""
        for limit, used, whose in ((self.most, self.open, "the server"), (self.per_key, self._of[caller], "a key")):
            if limit is None:
                continue
            if samples > limit:
                raise ApiError(400, f"n: {samples:,} answers at once; {whose} takes {limit:,}", "n", "invalid_value")
            if used + samples > limit:
                said = f"{used:,} answers are open, and {whose} takes {limit:,} at once; try again in a moment"
                raise ApiError(429, said, None, "rate_limit_exceeded", RETRY_AFTER)
        self.open += samples
        self._of[caller] += samples

    def give_back(self, caller: str, samples: int) -> None:
        self.open -= samples
        self._of[caller] -= samples
        if not self._of[caller]:
            del self._of[caller]

    @contextmanager
    def enter(self, caller: str) -> Iterator[None]:
        """A place for what is no request, and is asked of the engine too."""
        self.take(caller, 1)
        try:
            yield
        finally:
            self.give_back(caller, 1)
