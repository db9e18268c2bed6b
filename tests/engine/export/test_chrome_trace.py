"""A run as Chrome trace JSON: the format's rules, and counts that are those of the run."""

import gzip
import json
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import EngineConfig, Trace
from engine.export import Source
from engine.export.chrome_trace import write_chrome_trace
from engine.trace import Kind, Submitted
from tests.engine.export.conftest import Runs
from tests.engine.trace.hand_made import D, P, ended, header, step, submitted

NEEDED = {  # by phase, of every event
    "M": {"name", "pid", "args"},
    "X": {"name", "pid", "tid", "ts", "dur"},
    "C": {"name", "pid", "ts", "args"},
    "i": {"name", "pid", "ts", "s"},
    **{phase: {"name", "cat", "id", "pid", "tid", "ts"} for phase in "stf"},
}
Event = dict[str, Any]


def written(source: Source, path: Path) -> list[Event]:
    write_chrome_trace(source, path)
    told = json.loads(path.read_text(encoding="utf-8"))
    assert set(told) == {"displayTimeUnit", "otherData", "traceEvents"}
    return told["traceEvents"]


def check(events: list[Event]) -> None:
    """What the importers of the format rely on."""
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    flows: dict[int, list[Event]] = defaultdict(list)
    processes: dict[int, int] = {}
    for event in events:
        assert NEEDED[event["ph"]] <= event.keys(), event
        assert event["ts"] >= 0
        if event["ph"] == "X":
            begin = round(event["ts"] * 1000)
            slices[event["pid"], event["tid"]].append((begin, begin + round(event["dur"] * 1000)))
            assert event["dur"] > 0
        elif event["ph"] == "C":
            assert event["args"]
            assert all(isinstance(value, int | float) for value in event["args"].values())
        elif event["ph"] in "stf":
            flows[event["id"]].append(event)
            at, track = round(event["ts"] * 1000), (event["pid"], event["tid"])
            assert any(begin <= at < end for begin, end in slices[track]), "a flow is bound to a slice that is there"
        if event["tid"]:
            assert processes.setdefault(event["tid"], event["pid"]) == event["pid"], "a thread is of one process"
    for spans in slices.values():
        spans.sort()
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans)), "slices of a track overlap"
    for steps in flows.values():
        assert [event["ph"] for event in steps] == ["s", *"t" * (len(steps) - 2), "f"]
        assert [event["ts"] for event in steps] == sorted(event["ts"] for event in steps)


def named(events: list[Event], process: str) -> list[Event]:
    """The slices of a process."""
    pid = next(e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == process)
    return [e for e in events if e["ph"] == "X" and e["pid"] == pid]


def test_every_row_step_and_request_of_a_run_is_a_slice_and_nothing_else(runs: Runs, tmp_path: Path) -> None:
    trace = runs.busy
    events = written(Source.of_trace(trace), tmp_path / "run.json")
    check(events)
    steps = trace.steps
    rows = named(events, "slots")
    assert len(rows) == sum(step.rows for step in steps)
    kinds = Counter(e["name"].split()[0] for e in rows)
    verified = sum(int(np.count_nonzero(step.drafted)) for step in steps)
    assert verified > 0
    assert kinds["verify"] == verified
    assert kinds["prefill"] == sum(int((step.kind == Kind.PREFILL).sum()) for step in steps)
    assert sum(e["args"]["tokens"] for e in rows) == sum(int(step.count.sum()) for step in steps)
    said = "".join(e["args"].get("text", "") for e in rows if e["args"]["request"] == 1)
    assert said.startswith(trace.requests[1].text[:40])
    assert sum(e["name"].startswith("step ") for e in named(events, "engine")) == len(steps)
    samples = [s for r in trace.requests.values() for s in r.samples]
    assert len({e["tid"] for e in named(events, "requests")}) == len(samples)
    states = Counter(e["name"] for e in named(events, "requests"))
    assert states["swapped out"] == sum(r.preemptions for r in trace.requests.values()) > 0
    assert len({e["id"] for e in events if e["ph"] == "s"}) == len(samples)


def test_counters_tell_what_the_steps_tell(runs: Runs, tmp_path: Path) -> None:
    trace = runs.busy
    events = written(Source.of_trace(trace), tmp_path / "run.json")
    told: dict[str, dict[float, dict[str, float]]] = defaultdict(dict)
    for event in events:
        if event["ph"] == "C":
            told[event["name"]][event["ts"]] = event["args"]
    assert {"running", "waiting", "KV blocks", "KV tokens", "tokens a second"} <= set(told)
    assert max(v["samples"] for v in told["waiting"].values()) == max(s.waiting for s in trace.steps)
    assert max(v["samples"] for v in told["running"].values()) == max(s.running for s in trace.steps)
    for blocks in told["KV blocks"].values():
        assert sum(blocks.values()) == trace.header.blocks
    assert max(v["used"] for v in told["KV tokens"].values()) == max(s.kv_used for s in trace.steps)


def test_steps_that_overlap_and_a_gpus_clock_have_tracks_without_overlaps(tmp_path: Path) -> None:
    seconds = {"plan": 0.1, "forward": 0.2, "wait": 0.5, "commit": 0.1, "record": 0.4}
    steps = [step(i, 1 + i, 2.5 + i, [(0, 3 * i, 3, P if i == 0 else D)], {0: 7}) for i in range(3)]
    steps = [replace(each, seconds=seconds, device=0.9) for each in steps]
    told = [header(EngineConfig(max_running=2)), submitted(1.0, 0, 3), *steps, ended(4.5, 0)]
    source = Source.of_trace(Trace(told))
    events = written(source, tmp_path / "run.json")
    check(events)
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    by_track: dict[str, list[Event]] = defaultdict(list)
    for event in named(events, "engine"):
        by_track[tracks[event["tid"]]].append(event)
    assert [(e["ts"], e["dur"]) for e in by_track["steps"]] == [(0, 1.5e6), (1.5e6, 1e6), (2.5e6, 1e6)]
    assert [e["name"] for e in by_track["GPU"]] == ["step 0", "step 1", "step 2"]
    assert [e["ts"] for e in by_track["GPU"]] == [0.5e6, 1.5e6, 2.5e6], "up to where the host began to commit"
    assert sum(e["dur"] for e in by_track["GPU"]) == pytest.approx(2.7e6)
    assert [e["name"] for e in by_track["CPU: launches a step"]] == ["plan", "forward"] * 3
    assert [e["ts"] for e in by_track["CPU: launches a step"]][::2] == [0, 1e6, 2e6], "the next is launched meanwhile"
    rows = named(events, "slots")
    assert [e["name"] for e in rows] == ["prefill #0", "decode #0", "decode #0"]
    assert [e["name"] for e in named(events, "requests")] == ["queued", "prefill", "decode"]


def test_each_rank_of_a_split_model_has_a_track_that_sums_up_to_its_records(tmp_path: Path) -> None:
    seconds = {"plan": 0.1, "forward": 0.6, "commit": 0.1}
    split = {"rank_computing": (0.3, 0.5), "rank_communicating": (0.1, 0.1), "rank_waiting": (0.2, 0.0)}
    steps = [step(i, 1 + i, 1.9 + i, [(0, 3 * i, 3, P if i == 0 else D)], {0: 7}) for i in range(4)]
    columns = {name: np.array(values, np.float32) for name, values in split.items()}
    sent = np.array([1000, 3000], np.int64)
    told = [replace(each, seconds=seconds, rank_bytes=sent, **columns) for each in steps[:3]]
    records = [header(EngineConfig(max_running=2)), submitted(1.0, 0, 3), *told, replace(steps[3], seconds=seconds)]
    events = written(Source.of_trace(Trace([*records, ended(4.9, 0)])), tmp_path / "run.json")
    check(events)
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for rank in range(2):
        own = [e for e in named(events, "engine") if tracks[e["tid"]] == f"rank {rank}"]
        for state in ("computing", "communicating", "waiting"):
            slices = [e for e in own if e["name"] == state]
            of_steps = [float(getattr(s, f"rank_{state}")[rank]) for s in told if getattr(s, f"rank_{state}")[rank] > 0]
            assert [e["args"]["step"] for e in slices] == list(range(len(of_steps)))
            assert sum(e["dur"] for e in slices) == pytest.approx(1e6 * sum(of_steps), rel=1e-6)
        assert own[0]["ts"] == pytest.approx(0.1e6), "where it was launched"
        assert sum(e["args"].get("bytes", 0) for e in own) == sum(int(s.rank_bytes[rank]) for s in told)
    assert next(e["args"]["sent"] for e in events if e["name"] == "bytes between ranks") == 4000


def test_each_stage_of_a_pipeline_has_a_slice_a_micro_batch_where_it_was_computed(tmp_path: Path) -> None:
    times = [[0.1, 0.3, 0.3, 0.5], [0.3, 0.5, 0.5, 0.7]]  # two micro-batches of rank 0, then of rank 1
    columns = dict(zip(("micro_begun", "micro_ended"), (np.array(column, np.float32) for column in times)))
    columns |= dict.fromkeys(("rank_computing", "rank_communicating", "rank_waiting"), np.full(2, 0.1, np.float32))
    told = [step(i, 1 + i, 1.9 + i, [(0, 3 * i, 3, P if i == 0 else D)], {0: 7}) for i in range(3)]
    told = [replace(each, rank_bytes=np.array([1000, 0], np.int64), **columns) for each in told]
    records = [header(EngineConfig(max_running=2)), submitted(1.0, 0, 3), *told, ended(4.0, 0)]
    events = written(Source.of_trace(Trace(records)), tmp_path / "run.json")
    check(events)
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for rank, begins in enumerate([(0.1, 0.3), (0.3, 0.5)]):
        own = [e for e in named(events, "engine") if tracks[e["tid"]] == f"rank {rank}"]
        assert [e["name"] for e in own] == ["micro-batch 1", "micro-batch 2"] * len(told)
        assert [e["ts"] for e in own] == pytest.approx([1e6 * (i + b) for i in range(3) for b in begins], rel=1e-6)
        assert sum(e["dur"] for e in own) == pytest.approx(1e6 * 3 * 0.4, rel=1e-6)


def test_a_races_lanes_lie_on_one_clock_and_gz_is_packed(runs: Runs, tmp_path: Path) -> None:
    source = Source.of_race(runs.race)
    events = written(source, tmp_path / "race.json")
    check(events)
    for name, trace in source.first:
        rows = named(events, f"{name}: slots")
        assert len(rows) == sum(step.rows for step in trace.steps)
        assert {e["name"].split()[0] for e in rows} >= {"prefill", "decode"}
        queued = min(e["ts"] for e in named(events, f"{name}: requests"))
        assert queued == 0, "the clock begins with the first request"
    assert any(e["name"].startswith("held ") for e in named(events, "static · 2: slots"))
    write_chrome_trace(source, tmp_path / "race.json.gz")
    assert gzip.decompress((tmp_path / "race.json.gz").read_bytes()) == (tmp_path / "race.json").read_bytes()


def test_a_request_is_queued_until_its_first_row(runs: Runs, tmp_path: Path) -> None:
    trace = runs.busy
    events = written(Source.of_trace(trace), tmp_path / "run.json")
    queued = [e for e in named(events, "requests") if e["name"] == "queued"]
    submissions = [r for r in trace.records if isinstance(r, Submitted) for _ in range(r.params.branches)]
    assert len(queued) == len(submissions)
    view = trace.requests[5]
    asked = next(e for e in queued if "cat and a kite" in e["args"]["prompt"])
    assert trace.origin is not None
    assert view.scheduled is not None
    assert asked["ts"] == pytest.approx((view.submitted - trace.origin) * 1e6, abs=0.001)
    assert asked["ts"] + asked["dur"] == pytest.approx((view.scheduled - trace.origin) * 1e6, rel=0.01)
