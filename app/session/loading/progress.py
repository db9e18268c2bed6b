"""How far a load is, in words and figures that can be shown."""

import time
from dataclasses import dataclass

from app.language import tr
from app.words import bytes_words
from engine.jobs import LoadProgress

COUNTED = ("capturing graphs",)  # stages that count things; all others count bytes
SETTLE = 0.5  # seconds of a stage before its rest can be estimated


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """How far a load is: bytes, or things in stages that are `COUNTED`; seconds since it began, and seconds that are
    left where that can be said."""

    stage: str
    done: int
    total: int
    elapsed: float
    remaining: float | None

    @property
    def counted(self) -> bool:
        """Whether `done` and `total` are no bytes."""
        return self.stage in COUNTED

    @property
    def words(self) -> str:
        """ "reading weights · 1.2 GB of 15 GB", "capturing graphs 3 of 35"."""
        if not self.total:
            return self.stage
        if self.counted:
            return tr("{stage} {done:,} of {total:,}", stage=self.stage, done=self.done, total=self.total)
        done, total = bytes_words(self.done), bytes_words(self.total)
        return tr("{stage} · {done} of {total}", stage=self.stage, done=done, total=total)


class LoadMeter:
    """Adds times to the progress of one load; the rate of a stage tells how long its rest takes."""

    def __init__(self) -> None:
        self._begun = self._stage_begun = time.perf_counter()
        self._stage = ""

    def read(self, progress: LoadProgress) -> LoadStatus:
        now = time.perf_counter()
        if progress.stage != self._stage:
            self._stage, self._stage_begun = progress.stage, now
        spent = now - self._stage_begun
        remaining = None
        if 0 < progress.done < progress.total and spent > SETTLE:
            remaining = spent * (progress.total - progress.done) / progress.done
        return LoadStatus(progress.stage, progress.done, progress.total, now - self._begun, remaining)
