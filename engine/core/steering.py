"""Changes the budget of a running engine, from any thread, and tells its trace."""

import threading
import time
from collections.abc import Callable
from functools import partial

from engine.config.live_budget import LiveBudget
from engine.config.specs import EngineConfig
from engine.core.inbox import Ask
from engine.scheduler.scheduler import Scheduler
from engine.trace.records import Steered
from engine.trace.trace import Trace


class Steering:
    """Of one trace, whose clock began at `origin`, and its scheduler. `post` has something done on the engine's
    thread, before its next step."""

    def __init__(
        self, config: EngineConfig, trace: Trace, origin: float, scheduler: Scheduler, post: Callable[[Ask], bool]
    ) -> None:
        self.budget = LiveBudget.of(config)
        self._config, self._trace, self._origin = config, trace, origin
        self._scheduler, self._post, self._lock = scheduler, post, threading.Lock()

    def __call__(self, token_budget: int | None, max_running: int | None, prefill_share: float | None) -> LiveBudget:
        """Returns what is in force from the next step on. Raises InvalidInput."""
        with self._lock:
            budget = self.budget.changed(
                self._config, token_budget=token_budget, max_running=max_running, prefill_share=prefill_share
            )
            if budget != self.budget:
                self.budget = budget
                self._post(partial(self._apply, budget))
            return budget

    def _apply(self, budget: LiveBudget) -> None:
        if not self._trace.complete:  # else another began since
            self._scheduler.steer(budget)
            now = time.perf_counter() - self._origin
            self._trace.append(Steered(now, budget.token_budget, budget.max_running, budget.prefill_share))
