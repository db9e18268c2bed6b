"""Adapters: requests of four voices in one batch beside one voice at a time, and what they cost a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median, quantiles

from engine.bench.techniques.measured import Measured
from engine.checkpoints.adapters import EMBEDDED_ADAPTERS
from engine.config.specs import EngineConfig, ModelSpec, SamplingParams
from engine.core.engine import Engine
from engine.trace.measures import metrics
from engine.trace.records import Kind
from engine.workloads.library import demo_workload, load_workload

ROWS, TOKENS = 16, 64
GAIN, COST = 1.3, 1.25  # tokens a second, and the time of a step
STORIES = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True)


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    """The workload of four voices, apart and together; a decode step of as many rows through none, one and four of
    them, beside the model that was loaded without any."""
    config = EngineConfig(max_running=ROWS)
    with (
        Engine(ModelSpec("demo"), config, threads=threads) as plain,
        Engine(ModelSpec("demo", adapters=EMBEDDED_ADAPTERS), config, threads=threads) as adapted,
    ):
        yield from _together(adapted, rounds)
        names = "", *EMBEDDED_ADAPTERS
        for title, through in (("none", ("",)), ("one", names[1:2]), ("four voices", names)):
            found = [(_step(plain, ("",)), _step(adapted, through)) for _ in range(rounds)]
            without, with_it = (1e3 * median(times) for times in zip(*found, strict=True))
            ratio = median(after / before for before, after in found)
            what = f"ms a decode step of {ROWS} rows, through {title}"
            yield Measured("adapters", "stories", what, without, with_it, ratio, COST, at_most=True)


def _together(engine: Engine, rounds: int) -> Iterator[Measured]:
    workload = load_workload("voices")
    apart, mixed = (EngineConfig(max_running=ROWS, mixed_adapters=mixed) for mixed in (False, True))
    found = [
        [metrics.measure(engine.run(workload, config).result()) for config in (apart, mixed)] for _ in range(rounds + 1)
    ][1:]  # the first warms up
    for what, value, goal, at_most in (
        ("output tok/s", lambda one: one.output_throughput, GAIN, False),
        ("ms to the first token, p95", lambda one: 1e3 * one.ttft.p95, 1 / GAIN, True),
    ):
        sides = [[value(one) for one in each] for each in found]
        without, with_it = (median(side) for side in zip(*sides, strict=True))
        ratio = median(together / one_by_one for one_by_one, together in sides)
        yield Measured("adapters share steps", "voices", what, without, with_it, ratio, round(goal, 2), at_most)


def _step(engine: Engine, through: Sequence[str]) -> float:
    """Seconds of a step in which every row decodes: the lower quartile, which leaves out what else the machine does."""
    trace = engine.run(demo_workload(ROWS, STORIES).through(through)).result()
    steps = [step for step in trace.steps if step.rows == ROWS and bool((step.kind == Kind.DECODE).all())]
    return quantiles((step.seconds["forward"] for step in steps), n=4)[0]
