"""What of a config may be changed while the engine runs, from its next step on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from engine.config.checks import check, number, whole
from engine.config.specs import PAGED_MODES, SOLITARY_MODES, TARGET_MODES, TARGET_RULE, EngineConfig

SHARED_BUDGET_MODES = ("continuous-padded", *PAGED_MODES)  # where a step's tokens can be chosen


class BudgetChanges(TypedDict, total=False):
    """Values of a LiveBudget; None, as what is left out, leaves one as it is."""

    token_budget: int | None
    max_running: int | None
    prefill_share: float | None
    target_itl: float | None


@dataclass(frozen=True, slots=True)
class LiveBudget:
    """How much a step may compute now, within what was prepared at load.

    `token_budget` and `max_running` mean what they mean in the config, which is the most of either. `prefill_share` is
    the share of the token budget, above 0 and at most 1, that prompts may have of a step. `target_itl` is what the
    config's means, any number of seconds, and 0 for none.
    """

    token_budget: int
    max_running: int
    prefill_share: float = 1.0
    target_itl: float = 0.0

    @classmethod
    def of(cls, config: EngineConfig) -> LiveBudget:
        """All that the config allows."""
        return cls(config.token_budget, config.max_running, target_itl=config.target_itl or 0.0)

    @property
    def prompt_tokens(self) -> int:
        """The most tokens of prompts in a step: at least one, so that no prompt waits for ever."""
        return max(1, int(self.prefill_share * self.token_budget))

    def changed(self, config: EngineConfig, **changes: Unpack[BudgetChanges]) -> LiveBudget:
        """With what is given in place of what is in force. Raises InvalidInput for more than the config has, and for
        what its mode has no use for."""
        given = {name: value for name, value in changes.items() if value is not None}
        new, mode = replace(self, **given), config.mode  # type: ignore[arg-type]
        tokens = f"mode {mode!r} computes prompts whole; use one of {', '.join(SHARED_BUDGET_MODES)}"
        for name in ("token_budget", "prefill_share"):
            check(name not in given or mode in SHARED_BUDGET_MODES, name, given.get(name), tokens)
        alone = f"mode {mode!r} runs one request at a time"
        check("max_running" not in given or mode not in SOLITARY_MODES, "max_running", new.max_running, alone)
        for name in ("token_budget", "max_running"):
            if name in given:
                _within(name, getattr(new, name), getattr(config, name))
        rule = "must be above 0 and at most 1 (all of the token budget)"
        check(number("prefill_share", new.prefill_share, 0.0, 1.0, rule) > 0, "prefill_share", new.prefill_share, rule)
        number("target_itl", new.target_itl, 0.0, 3600.0, "must be a number of seconds, 0 for none")
        whole = TARGET_RULE.format(mode=mode)
        check(not new.target_itl or mode in TARGET_MODES, "target_itl", new.target_itl, whole)
        fits = mode not in SHARED_BUDGET_MODES or new.token_budget >= new.max_running
        least = f"must be at least max_running ({new.max_running}): lower that with it"
        check(fits, "token_budget", new.token_budget, least)
        return new


def _within(name: str, value: int, most: int) -> None:
    rule = f"the engine was prepared for at most {most:,}; begin with a config that has more"
    whole(name, value)
    check(value <= most, name, value, rule)
