"""Runs of the demo model that have everything an export tells of, and a race of two lanes."""

from dataclasses import dataclass

import pytest

from engine import Engine, EngineConfig, SamplingParams, Submission, Trace, Workload, parse_lanes
from engine.compare import LaneRun, RaceResult
from engine.workloads import Arrival
from tests.engine.conftest import begin_when_idle

PROMPTS = [f"Tell me a story about a {word} and a kite." for word in ("fox", "owl", "mole", "hen", "bear", "cat")]


@dataclass(frozen=True)
class Runs:
    """`busy`: drafts, two samples, preemption by swap in a tiny pool, a request that is not over. `race`: two lanes."""

    busy: Trace
    race: RaceResult


@pytest.fixture(scope="session")
def runs(demo_engine: Engine) -> Runs:
    token = demo_engine.card.kv_token_bytes
    tiny = EngineConfig(
        max_running=4, token_budget=128, kv_memory=14 * 16 * token, preemption="swap", speculation="ngram"
    )
    begin_when_idle(demo_engine, tiny)
    params = SamplingParams(max_tokens=48, temperature=0, ignore_eos=True)
    for stream in demo_engine.submit_many(
        [Submission(p, params if i else params.with_(n=2)) for i, p in enumerate(PROMPTS)]
    ):
        stream.result()
    busy = Trace(list(demo_engine.trace.records)[:-1])  # the last end is cut off
    arrivals = tuple(Arrival(0.01 * i, p, params.with_(max_tokens=8 * (i + 1))) for i, p in enumerate(PROMPTS))
    workload = Workload("foxes", arrivals, title="Foxes & owls")
    lanes, played = parse_lanes("static:2,continuous:4"), []
    for i, lane in enumerate(lanes):
        begin_when_idle(demo_engine, lane.config)
        played.append(LaneRun(i, 0, demo_engine.run(workload, lane.config).result()))
        played[-1] = LaneRun(i, 0, Trace(played[-1].trace.records))
    return Runs(busy, RaceResult(workload, lanes, tuple(played), 512 * token))
