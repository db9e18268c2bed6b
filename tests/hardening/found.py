"""What came of what was tried."""

from collections import Counter
from dataclasses import dataclass, field

FINE = ("taken", "refused", "ended", "opened", "kept")


@dataclass(slots=True)
class Found:
    """What came of the trials of one kind; `defects` by what is wrong, each with where it was seen."""

    counts: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)

    def add(self, kind: str, number: int, outcome: str, words: str) -> None:
        self.counts[outcome] += 1
        if outcome not in FINE:
            self.defects.append(f"{kind} {number}: {outcome}: {words}")
