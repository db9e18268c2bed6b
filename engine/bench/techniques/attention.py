"""Attention that is told: what a decode step costs more whose rows note what they attend to, and is not replayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import median

from engine.bench.techniques.measured import Measured
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.core.engine import Engine
from engine.trace.records import Kind
from engine.workloads.library import demo_workload

ROWS = ((1, 1), (16, 1), (16, 16))  # of a step, and how many of them are watched
GOALS = (5.0, 2.5, 4.5)
PLAIN = SamplingParams(max_tokens=48, temperature=0, ignore_eos=True)


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    """A decode step of all rows, with some of them watched and with none, in turns."""
    with Engine(ModelSpec("demo"), EngineConfig(max_running=16), threads=threads) as engine:
        for (rows, watched), goal in zip(ROWS, GOALS):
            found = [(_seconds(engine, rows, 0), _seconds(engine, rows, watched)) for _ in range(rounds)]
            without, with_it = (median(times) for times in zip(*found, strict=True))
            ratio = median(after / before for before, after in found)
            what = f"ms a decode step of {rows} rows, {watched} watched"
            yield Measured("attention told", "stories", what, 1e3 * without, 1e3 * with_it, ratio, goal, at_most=True)


def _seconds(engine: Engine, rows: int, watched: int) -> float:
    """From the end of one step in which every row decodes to that of the next."""
    workload = demo_workload(rows, PLAIN)
    arrivals = [
        replace(arrival, params=arrival.params.with_(attention=i < watched))
        for i, arrival in enumerate(workload.arrivals)
    ]
    steps = engine.run(replace(workload, arrivals=tuple(arrivals))).result().steps
    ends = [step.ended for step in steps if step.rows == rows and bool((step.kind == Kind.DECODE).all())]
    return median(after - before for before, after in pairwise(ends))
