"""How large a step may be since one ran out of memory. No torch."""

from dataclasses import dataclass

SMALLEST = 16  # prompt tokens: below, a step is hardly smaller
PATIENCE, MOST_PATIENCE = 32, 1 << 14  # steps that must go well before a limit is doubled


@dataclass(slots=True)
class Limits:
    """`prompts`: tokens of prompts that a step may compute; `rows`: requests that may run at once; None: what the
    config allows. Each step that runs out of memory halves one of them. After `patience` steps that went well both are
    doubled, which takes twice as long each time that it was too much."""

    prompts: int | None = None
    rows: int | None = None
    patience: int = PATIENCE
    _well: int = 0
    _doubled: bool = False

    def of_prompts(self, budget: int) -> int:
        """What of a budget of tokens prompts may have."""
        return budget if self.prompts is None else min(budget, self.prompts)

    def halve(self, prompts: int, rows: int) -> bool:
        """After a step of so many prompt tokens in so many rows failed: False where it could not be smaller."""
        if prompts > SMALLEST:
            self.prompts = max(SMALLEST, prompts // 2)
        elif rows > 1:
            self.rows = rows // 2
        else:
            return False
        if self._doubled:
            self.patience = min(2 * self.patience, MOST_PATIENCE)
        self._well, self._doubled = 0, False
        return True

    def went_well(self, budget: int, slots: int) -> None:
        """Counts a step; doubles what is limited, up to the config's token budget and slots."""
        if self.prompts is None and self.rows is None:
            return
        self._well += 1
        if self._well < self.patience:
            return
        self._well, self._doubled = 0, True
        if self.prompts is not None:
            self.prompts = 2 * self.prompts if 2 * self.prompts < budget else None
        if self.rows is not None:
            self.rows = 2 * self.rows if 2 * self.rows < slots else None

    @property
    def words(self) -> str:
        """The limits, for people."""
        prompts = "" if self.prompts is None else f"prompts now go {self.prompts:,} tokens at a time"
        rows = "" if self.rows is None else f"at most {self.rows:,} now run at once"
        return " and ".join(filter(None, (prompts, rows)))
