"""What the scheduler alone costs a step, with few and with many requests waiting."""

import time
from statistics import median
from typing import cast

from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.decoding.output import Output
from engine.scheduler.block_pool import BlockPool
from engine.scheduler.request import Branch, Emission, Request
from engine.scheduler.scheduler import Scheduler

RUNNING, PROMPT, LIMIT = 64, 64, 100_000


class _Mute:
    """An Output that says nothing and never ends, so that only the scheduler is timed."""

    def push(self, token: int) -> tuple[str, None]:
        return "", None


def scheduler_seconds(waiting: int, steps: int = 200) -> float:
    """Median seconds of plan() and commit() of a decode step of 64 running requests, so many others waiting."""
    config = EngineConfig(max_running=RUNNING)
    scheduler = Scheduler(config, BlockPool(RUNNING * (PROMPT + steps), config.block_size))
    params = SamplingParams(max_tokens=LIMIT, temperature=0)
    for i in range(RUNNING + waiting):
        request = Request(i, PROMPT, params, LIMIT, 0)
        request.branches.append(Branch(request, [0] * PROMPT, cast(Output, _Mute())))
        scheduler.add(request)
    seconds: list[float] = []
    while len(seconds) < steps:
        begun = time.perf_counter()
        plan = scheduler.plan()
        assert plan is not None
        planned = time.perf_counter()
        sampled = [Emission(0)] * sum(row.samples for row in plan.rows)
        ready = time.perf_counter()
        scheduler.commit(plan, sampled)
        if len(plan.rows) == RUNNING and all(row.count == 1 for row in plan.rows):
            seconds.append(time.perf_counter() - ready + planned - begun)
    return median(seconds)
