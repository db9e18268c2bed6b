"""What the prefill worker does beside the decode steps, as the engine's loop and its records have it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.core.prefill.handle import Computed, PrefillWorker
from engine.parallel.board import RankTimes
from engine.runner.launched_step import LaunchedStep
from engine.scheduler.plan import Committed, Row
from engine.scheduler.scheduler import Scheduler

NAP = 0.005  # seconds that who has nothing to decode waits for the worker before it looks at what is asked for


class Beside:
    """Sends the worker of one scheduler what it computes next, and takes what it has done at the end of a step: each
    step's record tells of the prompts that were computed meanwhile. `kv_bytes` of a token that is handed over;
    `notice` tells of what the worker could not compute."""

    def __init__(
        self, scheduler: Scheduler, worker: PrefillWorker, kv_bytes: int, notice: Callable[[str, str], None]
    ) -> None:
        self._scheduler, self._worker, self._kv_bytes, self._notice = scheduler, worker, kv_bytes, notice
        self._sent = 0.0  # when the worker got what it computes
        self._done: tuple[float, float] = 0.0, 0.0  # the last span that it computed in
        self._told = 0.0  # until when records tell of it

    @property
    def busy(self) -> bool:
        return self._scheduler.away is not None

    def send(self) -> None:
        """The next prompts, where the worker is free."""
        if not self.busy and (plan := self._scheduler.plan_prompts()) is not None:
            self._worker.compute(plan)
            self._sent = time.perf_counter()

    def wait(self, timeout: float = NAP) -> bool:
        """Whether the worker is done, after so many seconds at most."""
        return self.busy and self._take(timeout)

    def abandon(self) -> None:
        """Nobody waits for what the worker computes: it ends, and another is started when one is needed."""
        if self.busy:
            self._worker.kill()
            self._scheduler.commit_prompts()

    @property
    def begun(self) -> float:
        """Since when the record that is to be made next tells of the worker."""
        return max(self._sent, self._told)

    def join(self, launched: LaunchedStep, committed: list[Committed]) -> list[Committed]:
        """The record of a step that ends now tells of the prompts too; returns the outcomes of all its rows."""
        rows, outcomes = self._rows()
        launched.plan, launched.beside = replace(launched.plan, rows=(*launched.plan.rows, *rows)), len(rows)
        times = self._times(launched, time.perf_counter(), rows)
        launched.times = lambda number: times
        return committed + outcomes

    def _rows(self) -> tuple[list[Row], list[Committed]]:
        """Those of the worker: all their tokens once they are computed, none before."""
        plan = self._scheduler.away
        if plan is None:
            return [], []
        if self._done[1] >= self._sent or self._take(0.0):
            return list(plan.rows), self._scheduler.commit_prompts()
        if not self.busy:  # it failed
            return [], []
        return [replace(row, count=0, reused=0, again=0) for row in plan.rows], [Committed()] * len(plan.rows)

    def _times(self, launched: LaunchedStep, ended: float, rows: Sequence[Row]) -> RankTimes:
        """What a step took both: this process, and the worker, of which `rows` are."""
        begun, seconds = launched.started, launched.seconds
        computing = seconds.get("prepare", 0.0) + seconds.get("forward", 0.0)
        first, last = (self._sent, ended) if self.busy else self._done
        worked = max(0.0, min(last, ended) - max(first, begun)) if first < last else 0.0
        sent = sum(row.count for row in rows) * self._kv_bytes
        self._told = ended
        whole = ended - begun
        waiting = max(0.0, whole - computing), max(0.0, whole - worked)
        return RankTimes((computing, worked), (0.0, 0.0), waiting, (0, sent))

    def _take(self, timeout: float) -> bool:
        if self._done[1] < self._sent and (found := self._worker.computed(timeout)) is not None:
            self._done = self._sent, max(found.ended, self._sent)
            if found.error:
                self._failed(found)
                return False
        return self._done[1] >= self._sent

    def _failed(self, found: Computed) -> None:
        plan = self._scheduler.away
        tokens = sum(row.count for row in plan.rows) if plan is not None else 0
        what = "ran out of memory" if found.short else "failed"
        self._notice("warning" if found.short else "error", f"prompts of {tokens:,} tokens {what}: {found.error}")
        self._scheduler.retract_prompts(f"the prompt {what}: {found.error}", found.short)
