"""The batching modes: who may join a step, and how many tokens each gets. One small class a mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.trace.records import Refusal

if TYPE_CHECKING:
    from engine.scheduler import Row, Scheduler


class Policy(Protocol):
    def plan(self, scheduler: Scheduler) -> tuple[list[Row], list[tuple[int, Refusal]]]:
        """The rows of the next step, and the requests that were refused, each with its reason."""
        ...


class Continuous:
    """Requests join and leave at every step. Prefill steps and decode steps take turns while there is work for both,
    so that neither starves."""

    def __init__(self) -> None:
        self._prefilled = False

    def plan(self, scheduler: Scheduler) -> tuple[list[Row], list[tuple[int, Refusal]]]:
        if self._prefilled:
            rows = scheduler.decode_rows()
            if rows:
                self._prefilled = False
                return rows, scheduler.head_refused(Refusal.DECODE_TURN)
        rows, refused = scheduler.prefill_rows(scheduler.config.token_budget)
        self._prefilled = bool(rows)
        if rows:
            return rows, refused
        return scheduler.decode_rows(), refused


def policy_for(mode: str) -> Policy:
    """The policy of a mode that EngineConfig has accepted."""
    match mode:
        case "continuous":
            return Continuous()
        case _:
            raise AssertionError(f"no policy for mode {mode!r}")
