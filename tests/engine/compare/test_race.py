"""Races on the demo model: what is told, what fails in its place, what a cancel leaves."""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine import Engine, EngineConfig, EngineProcess, InvalidInput, ModelSpec, Run, SamplingParams, Workload, measure
from engine.compare import Verdict, agreement
from engine.compare.comparison import compare_race
from engine.compare.host import LocalHost
from engine.compare.lane import Lane
from engine.compare.lane_grammar import parse_lanes
from engine.compare.lane_run import LaneFailed, LaneFinished, LaneLoading, LaneStarted
from engine.compare.race import Race, RaceEvent, RaceFinished
from engine.compare.race_file import load_race, save_race
from engine.core.face import EngineFace
from engine.jobs import LoadProgress
from engine.trace.records import FinishReason
from engine.workloads import Arrival, demo_workload

GREEDY = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
SHORT = demo_workload(6, GREEDY)


class Lender:
    """Hands out one loaded engine, as the window does; other models are refused."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.opened: list[ModelSpec] = []

    def open(
        self,
        spec: ModelSpec,
        config: EngineConfig,
        progress: Callable[[LoadProgress], None],
        cancelled: threading.Event,
    ) -> EngineFace:
        self.opened.append(spec)
        if spec.source != "demo":
            raise InvalidInput(f"no such model {spec.source}")
        return self.engine

    def close(self) -> None:
        pass


def race(lanes: str, workload: Workload = SHORT, **options: object) -> Race:
    return Race(workload, parse_lanes(lanes), **options)  # type: ignore[arg-type]


def test_every_lane_plays_the_same_prompts_with_the_same_memory(large_demo: Engine) -> None:
    told: list[RaceEvent] = []
    result = race("continuous:2,continuous:4:block=32", repeats=2, order="rotated", kv_tokens=1024).play(
        Lender(large_demo), told.append, threading.Event()
    )
    assert [(type(e), e.lane, e.repeat) for e in told[:-1]] == [
        (kind, lane, repeat)
        for lane, repeat in ((0, 0), (1, 0), (1, 1), (0, 1))
        for kind in (LaneStarted, LaneFinished)
    ]
    assert told[-1] == RaceFinished(result)
    assert result.names == ("continuous · 2", "continuous · 4 · blocks of 32")
    assert result.kv_memory == 1024 * large_demo.card.kv_token_bytes
    assert not result.cancelled
    for lane in range(2):
        assert result.error(lane) == ""
        for trace in result.traces(lane):
            config, blocks = trace.header.config, trace.header.blocks
            assert config.kv_memory == result.kv_memory
            assert blocks * config.block_size == 1024
            assert [len(v.tokens) for v in trace.requests.values()] == [12] * 6
    assert len({id(h.trace) for h in result.lane_runs}) == 4


def test_a_lane_may_search_with_beams(demo: Engine, tmp_path: Path) -> None:
    result = race("continuous:4,continuous:4:beams=3", kv_tokens=2048).play(
        Lender(demo), lambda _: None, threading.Event()
    )
    assert result.names == ("continuous · 4", "continuous · 4 · 3 beams")
    greedy, searched = (result.traces(lane)[0].requests.values() for lane in range(2))
    assert [len(view.samples) for view in greedy] == [1] * 6
    assert [[sample.score is not None for sample in view.samples] for view in searched] == [[True] * 3] * 6
    save_race(result, tmp_path / "a.bsrace")
    assert load_race(tmp_path / "a.bsrace")[0].lanes == result.lanes


def test_a_lane_is_rehearsed_once_before_its_clock_starts(demo: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[int, int, int]] = []
    run = demo.run

    def counted(workload: Workload, config: EngineConfig) -> Run:
        played.append((config.max_running, len(workload), max(a.params.max_tokens for a in workload.arrivals)))
        return run(workload, config)

    monkeypatch.setattr(demo, "run", counted)
    late = replace(SHORT, arrivals=tuple(replace(a, time=0.01 * i) for i, a in enumerate(SHORT.arrivals)))
    result = race("continuous:2:depth=1,continuous:64:depth=1", late, repeats=2).play(
        Lender(demo), lambda event: None, threading.Event()
    )
    assert played == [(2, 2, 8), (2, 6, 12), (64, 6, 8), (64, 6, 12), (2, 6, 12), (64, 6, 12)]
    assert [len(t.requests) for t in result.traces(0)] == [6, 6]


def test_a_lane_that_fails_says_so_and_the_others_finish(large_demo: Engine) -> None:
    told: list[RaceEvent] = []
    lanes = parse_lanes("continuous:model=/no/model,continuous:2,continuous:4:block=4096")
    result = Race(SHORT, lanes, kv_tokens=1024, repeats=2).play(Lender(large_demo), told.append, threading.Event())
    assert [(e.lane, e.repeat) for e in told if isinstance(e, LaneFailed)] == [(0, 0), (2, 0), (0, 1), (2, 1)]
    assert [bool(result.traces(i)) for i in range(3)] == [False, True, False]
    assert result.error(0) == "no such model /no/model"
    assert "one block" in result.error(2)
    assert not result.cancelled


def test_a_static_batch_wastes_what_the_textbook_says_and_a_continuous_one_nothing(demo: Engine) -> None:
    """Eight prompts of equal length in one batch, seven with 10 new tokens and one with 100."""
    arrivals = [Arrival(0.0, [5] * 6, GREEDY.with_(max_tokens=n)) for n in (10,) * 7 + (100,)]
    result = race("static:8,continuous:8", Workload("textbook", tuple(arrivals))).play(
        Lender(demo), lambda event: None, threading.Event()
    )
    static, continuous = (measure(result.traces(i)[0]) for i in range(2))
    assert (static.steps, static.row_steps, static.wasted_rows) == (100, 800, 630)
    assert static.wasted_row_share == 0.7875
    assert (continuous.steps, continuous.row_steps, continuous.wasted_rows) == (100, 170, 0)
    assert continuous.idle_share == 0.7875
    assert agreement(*(result.traces(i)[0] for i in range(2))).verdict is Verdict.SAME


def test_prompts_that_no_lane_can_hold_fail_with_the_reason(demo: Engine) -> None:
    result = race("continuous:2", kv_tokens=16).play(Lender(demo), lambda event: None, threading.Event())
    assert "the whole KV pool holds 16 tokens" in result.error(0)


def test_a_cancel_keeps_what_was_finished(large_demo: Engine) -> None:
    cancelled = threading.Event()

    def tell(event: RaceEvent) -> None:
        if isinstance(event, LaneStarted) and event.lane == 1:
            cancelled.set()

    long = SHORT.with_params(GREEDY.with_(max_tokens=60))
    result = race("continuous:4,continuous:2,continuous:8", long).play(Lender(large_demo), tell, cancelled)
    assert result.cancelled
    assert [len(result.traces(i)) for i in range(3)] == [1, 0, 0]
    first, second = result.lane_runs
    assert first.finished
    assert second.cancelled
    assert second.trace is not None
    assert {v.reason for v in second.trace.requests.values()} <= {FinishReason.CANCELLED}
    assert result.error(1) == result.error(2) == ""


def test_a_cancelled_race_does_not_begin(large_demo: Engine) -> None:
    cancelled = threading.Event()
    cancelled.set()
    host = Lender(large_demo)
    result = race("continuous").play(host, lambda event: None, cancelled)
    assert (result.lane_runs, result.cancelled, result.kv_memory, host.opened) == ((), True, None, [])


class ProcessHost:
    """Engines in a child process each; a dead one is replaced."""

    def __init__(self) -> None:
        self.engines: list[EngineProcess] = []

    def open(
        self,
        spec: ModelSpec,
        config: EngineConfig,
        progress: Callable[[LoadProgress], None],
        cancelled: threading.Event,
    ) -> EngineFace:
        if not self.engines or not self.engines[-1].alive:
            self.engines.append(EngineProcess(spec, config, progress=progress, cancelled=cancelled, threads=1))
        return self.engines[-1]

    def close(self) -> None:
        for engine in self.engines:
            engine.close()


def test_an_engine_that_is_killed_costs_its_lane_only() -> None:
    host, told = ProcessHost(), list[RaceEvent]()

    def tell(event: RaceEvent) -> None:
        told.append(event)
        if isinstance(event, LaneStarted) and event.lane == 0:
            os.kill(host.engines[-1].pid, signal.SIGKILL)

    long = SHORT.with_params(GREEDY.with_(max_tokens=100))
    try:
        result = race("continuous:2,continuous:4", long, kv_tokens=2048).play(host, tell, threading.Event())
    finally:
        host.close()
    assert "is gone (killed by signal SIGKILL)" in result.error(0)
    assert len(result.traces(1)) == 1
    assert len(host.engines) == 2
    assert {e.lane for e in told if isinstance(e, LaneLoading)} == {0, 1}


def test_a_host_in_this_process_keeps_the_model_it_has() -> None:
    never, spec = threading.Event(), ModelSpec("demo-draft")
    with LocalHost(threads=1) as host:
        first = host.open(spec, EngineConfig(max_running=2), lambda progress: None, never)
        assert host.open(ModelSpec("demo-draft"), EngineConfig(), lambda progress: None, never) is first
        with pytest.raises(InvalidInput, match="/no/model"):
            host.open(ModelSpec("/no/model"), EngineConfig(), lambda progress: None, never)
        assert not first.alive
        again = host.open(spec, EngineConfig(max_running=2), lambda progress: None, never)
        assert again.alive
    assert not again.alive


def test_a_lane_that_other_programs_disturbed_is_told_and_run_again_in_its_place(demo: Engine) -> None:
    lanes = "continuous:2,continuous:4"
    first = race(lanes, repeats=2, kv_tokens=1024).play(Lender(demo), lambda event: None, threading.Event())
    assert all(0 <= (run.others or 0) <= 1 for run in first.lane_runs)
    calm = [replace(run, others=0.01) for run in first.lane_runs]
    calm[2] = replace(calm[2], others=0.6)  # the second run of the first lane
    disturbed = replace(first, lane_runs=tuple(calm))
    words = "other programs used 60 % of the CPU during 1 of its 2 runs"
    assert (disturbed.disturbance(0), disturbed.disturbance(1)) == (words, "")
    again = Race.again(disturbed, 0)
    told: list[RaceEvent] = []
    result = again.play(Lender(demo), told.append, threading.Event())
    assert [(e.lane, e.repeat) for e in told if isinstance(e, LaneFinished)] == [(0, 1)]
    assert [a is b for a, b in zip(result.lane_runs, disturbed.lane_runs)] == [True, True, False, True]
    assert result.kv_memory == first.kv_memory
    found = compare_race(disturbed)
    assert found.remarks == [f"continuous · 2: {words}"]
    assert words in found.text()
    assert words in found.markdown()
    assert found.to_json()["lanes"][0]["disturbance"] == words
    others = found.row("others")
    assert others is not None
    assert (others.cells[0].low, others.cells[0].high) == (0.01, 0.6)
    stopped = threading.Event()
    stopped.set()
    assert again.play(Lender(demo), told.append, stopped).lane_runs == disturbed.lane_runs, "what was there stays"


def test_rounds_follow_the_order() -> None:
    assert race("continuous,continuous,continuous", repeats=4).rounds() == [[0, 1, 2]] * 4
    assert race("continuous,continuous,continuous", repeats=4, order="rotated").rounds() == [
        [0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2],
    ]  # fmt: skip
    shuffled = race(",".join(["continuous"] * 8), repeats=3, order="shuffled", seed=5)
    assert shuffled.rounds() == shuffled.rounds()
    assert all(sorted(lanes) == list(range(8)) for lanes in shuffled.rounds())
    assert len({tuple(lanes) for lanes in shuffled.rounds()}) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"repeats": 0}, "repeats=0"),
        ({"order": "by name"}, "as listed, rotated, shuffled"),
        ({"kv_tokens": 0}, "kv_tokens=0"),
        ({"kv_tokens": 9, "kv_memory": 9}, "give one"),
        ({"lanes": []}, "1 to 8"),
        ({"lanes": [Lane()] * 9}, "9 lanes"),
        ({"workload": Workload("none", ())}, "'none' has no prompts"),
    ],
)
def test_what_cannot_be_raced_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Race(**{"workload": SHORT, "lanes": [Lane()], **options})  # type: ignore[arg-type]
