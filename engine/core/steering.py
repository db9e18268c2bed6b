"""Changes the budget of a running engine, from any thread, and tells its trace."""

import threading
import time
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from typing import Unpack

from engine.config.live_budget import BudgetChanges, LiveBudget
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

    def __call__(self, **changes: Unpack[BudgetChanges]) -> LiveBudget:
        """Returns what is in force from the next step on. Raises InvalidInput."""
        with self._lock:
            budget = self.budget.changed(self._config, **changes)
            if budget != self.budget:
                self.budget = budget
                self._post(partial(self._apply, budget))
            return budget

    def _apply(self, budget: LiveBudget) -> None:
        if not self._trace.complete:  # else another began since
            self._scheduler.steer(budget)
            now = time.perf_counter() - self._origin
            self._trace.append(Steered(now, *astuple(budget)))
