"""Constrained output: what a step of 64 rows costs more when all of them write JSON to a schema."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median, quantiles

from engine.bench.techniques.measured import Measured
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.core.engine import Engine
from engine.trace.records import Kind, Step
from engine.workloads.library import demo_workload

ROWS, TOKENS, GOAL = 64, 48, 1.1
PHASES = ("plan", "prepare", "forward", "sample", "wait", "commit", "record")
TEXT = {"type": "string", "minLength": 80, "maxLength": 200}  # so long that no row ends before the others
SCHEMA = {
    "type": "object",
    "properties": {"hero": TEXT, "place": TEXT, "moral": TEXT},
    "required": ["hero", "place", "moral"],
    "additionalProperties": False,
}
WAYS = {"greedy": SamplingParams(temperature=0), "sampled": SamplingParams(temperature=0.8)}


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    """A decode step of all rows, without a schema and with it, in turns. The forward pass is the same work in both, but
    masks are found beside it: it is counted in each."""
    with Engine(ModelSpec("demo"), EngineConfig(max_running=ROWS), threads=threads) as engine:
        for name, way in WAYS.items():
            free = way.with_(max_tokens=TOKENS, ignore_eos=True)
            held = way.with_(max_tokens=TOKENS, json_schema=SCHEMA)
            _steps(engine, held)  # compiles the grammar, and what the library keeps of its states
            found = [(_seconds(_steps(engine, free)), _seconds(_steps(engine, held))) for _ in range(rounds)]
            without, with_it = (median(times) for times in zip(*found, strict=True))
            ratio = median(after / before for before, after in found)
            what = f"ms a decode step of {ROWS} rows, {name}"
            yield Measured(
                "constrained output", "JSON stories", what, 1e3 * without, 1e3 * with_it, ratio, GOAL, at_most=True
            )


def _steps(engine: Engine, params: SamplingParams) -> list[Step]:
    """Those in which every row decodes."""
    trace = engine.run(demo_workload(ROWS, params)).result()
    return [step for step in trace.steps if step.rows == ROWS and bool((step.kind == Kind.DECODE).all())]


def _seconds(steps: list[Step]) -> float:
    """Of one of them, the lower quartiles of its phases: what else the machine does stays out."""
    return sum(quantiles((step.seconds[phase] for step in steps), n=4)[0] for phase in PHASES)
