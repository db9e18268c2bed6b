"""How large a step may be: what a person has set, and less since one ran out of memory. No torch."""

from dataclasses import dataclass

from engine.config.live_budget import LiveBudget
from engine.scheduler.limits.pace import Pace
from engine.trace.records import Refusal

SMALLEST = 16  # prompt tokens: below, a step is hardly smaller
PATIENCE, MOST_PATIENCE = 32, 1 << 14  # steps that must go well before a limit is doubled


@dataclass(slots=True)
class Limits:
    """`budget` is what is set: all that the config has, or less. `pace` is what it leaves of that for a target between
    tokens, where one is set. `prompts`: tokens of prompts that a step may compute; `rows`: requests that may run at
    once; None: what the budget allows. Each step that runs out of memory halves one of them. After `patience` steps
    that went well both are doubled, which takes twice as long each time that it was too much."""

    budget: LiveBudget
    pace: Pace | None = None
    paced: bool = False  # whether it left the last step less than the budget
    prompts: int | None = None
    rows: int | None = None
    patience: int = PATIENCE
    _well: int = 0
    _doubled: bool = False

    @property
    def running(self) -> int:
        """How many requests may run at once."""
        return self.budget.max_running if self.rows is None else min(self.rows, self.budget.max_running)

    def of_prompts(self, decodes: int = 0) -> int:
        """How many tokens of prompts a step may compute beside so many decodes."""
        most = min(self.budget.token_budget - decodes, self.budget.prompt_tokens)
        fits = self.pace.prompts(decodes) if self.pace is not None and decodes else most
        self.paced, most = fits < most, min(fits, most)
        return max(0, most if self.prompts is None else min(most, self.prompts))

    @property
    def spent(self) -> Refusal:
        """Why the last step has no room for another prompt."""
        return Refusal.PACE if self.paced else Refusal.BUDGET

    def joins(self, running: int, more: int) -> bool:
        """Whether so many more may run beside so many, as far as the pace goes."""
        return self.pace is None or self.pace.joins(running, more)

    def steer(self, budget: LiveBudget) -> None:
        """Sets another budget. What was learned of the steps is kept."""
        self.budget = budget
        if not budget.target_itl:
            self.pace = None
        elif self.pace is None:
            self.pace = Pace(budget.target_itl)
        else:
            self.pace.target = budget.target_itl

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
