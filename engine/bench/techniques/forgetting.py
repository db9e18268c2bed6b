"""A cache that forgets: what long answers hold and read with a window and without, and how well a text is predicted."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from engine.bench.techniques.measured import Measured
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.core.engine import Engine
from engine.trace.measures.decode_steps import decode_steps
from engine.workloads.library import demo_workload

ROWS, NEW, WINDOW = 16, 640, 128
LAST = 64  # steps, at the answers' ends
HELD_GOAL, STEP_GOAL = 4.0, 1.0


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    """Of the demo model, whose answers grow to so many tokens: what the pool holds at most, and the last decode
    steps."""
    with Engine(ModelSpec("demo"), EngineConfig(max_running=ROWS), threads=threads) as engine:
        found = [(_run(engine, None), _run(engine, WINDOW)) for _ in range(rounds)]
    kept, window = zip(*found, strict=True)
    what = f"{ROWS} answers of {NEW} tokens, the last {WINDOW} kept"
    held = kept[0][0], window[0][0]
    yield Measured("KV window", what, "tokens of K and V at most", *held, held[0] / held[1], HELD_GOAL)
    before, after = (1e3 * median(seconds for _, seconds in each) for each in (kept, window))
    ratio = median(b[1] / a[1] for a, b in found)
    yield Measured("KV window", what, "ms a decode step", before, after, ratio, STEP_GOAL, at_most=True)


def _run(engine: Engine, window: int | None) -> tuple[int, float]:
    """The most tokens that the pool held, and the seconds of a decode step at the end."""
    params = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
    trace = engine.run(demo_workload(ROWS, params), EngineConfig(max_running=ROWS, kv_window=window)).result()
    timings = decode_steps(trace.steps, ROWS)
    return max(step.kv_used for step in trace.steps), median(timing.period for timing in timings[-LAST:])
