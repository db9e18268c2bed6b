"""What of a config may be changed while the engine runs, from its next step on."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config.checks import check, number, whole
from engine.config.specs import PAGED_MODES, SOLITARY_MODES, EngineConfig

SHARED_BUDGET_MODES = ("continuous-padded", *PAGED_MODES)  # where a step's tokens can be chosen


@dataclass(frozen=True, slots=True)
class LiveBudget:
    """How much a step may compute now, within what was prepared at load.

    `token_budget` and `max_running` mean what they mean in the config, which is the most of either. `prefill_share` is
    the share of the token budget, above 0 and at most 1, that prompts may have of a step.
    """

    token_budget: int
    max_running: int
    prefill_share: float = 1.0

    @classmethod
    def of(cls, config: EngineConfig) -> LiveBudget:
        """All that the config allows."""
        return cls(config.token_budget, config.max_running)

    @property
    def prompt_tokens(self) -> int:
        """The most tokens of prompts in a step: at least one, so that no prompt waits for ever."""
        return max(1, int(self.prefill_share * self.token_budget))

    def changed(
        self,
        config: EngineConfig,
        *,
        token_budget: int | None = None,
        max_running: int | None = None,
        prefill_share: float | None = None,
    ) -> LiveBudget:
        """With what is given in place of what is in force; None leaves a value as it is. Raises InvalidInput for more
        than the config has, and for what its mode has no use for."""
        mode = config.mode
        tokens = f"mode {mode!r} computes prompts whole; use one of {', '.join(SHARED_BUDGET_MODES)}"
        check(token_budget is None or mode in SHARED_BUDGET_MODES, "token_budget", token_budget, tokens)
        check(prefill_share is None or mode in SHARED_BUDGET_MODES, "prefill_share", prefill_share, tokens)
        alone = f"mode {mode!r} runs one request at a time"
        check(max_running is None or mode not in SOLITARY_MODES, "max_running", max_running, alone)
        if token_budget is not None:
            _within("token_budget", token_budget, config.token_budget)
        if max_running is not None:
            _within("max_running", max_running, config.max_running)
        if prefill_share is not None:
            rule = "must be above 0 and at most 1 (all of the token budget)"
            check(number("prefill_share", prefill_share, 0.0, 1.0, rule) > 0, "prefill_share", prefill_share, rule)
        new = LiveBudget(
            self.token_budget if token_budget is None else token_budget,
            self.max_running if max_running is None else max_running,
            self.prefill_share if prefill_share is None else float(prefill_share),
        )
        fits = mode not in SHARED_BUDGET_MODES or new.token_budget >= new.max_running
        least = f"must be at least max_running ({new.max_running}): lower that with it"
        check(fits, "token_budget", new.token_budget, least)
        return new


def _within(name: str, value: int, most: int) -> None:
    rule = f"the engine was prepared for at most {most:,}; begin with a config that has more"
    whole(name, value)
    check(value <= most, name, value, rule)
