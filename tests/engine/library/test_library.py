"""Files of runs are told in figures and a strip, by a child, and set side by side."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.bench.synthetic_lanes import lane_trace
from engine import InvalidInput, Trace, Workload, save_trace
from engine.compare import Lane, LaneRun, RaceResult, save_race
from engine.library import (
    HELD,
    IDLE,
    Making,
    RunFacts,
    Strip,
    differences,
    read_facts,
    read_library,
    read_side_by_side,
    run_title,
)
from engine.trace import Kind, measure


def trace_of(mode: str, seed: int = 0, requests: int = 10) -> Trace:
    return Trace(lane_trace(mode, slots=4, requests=requests, output=(4, 24), seed=seed))


@pytest.fixture(scope="module")
def static() -> Trace:
    return trace_of("static")


@pytest.fixture(scope="module")
def continuous() -> Trace:
    return trace_of("continuous")


def test_the_facts_of_a_run_are_its_measures(static: Trace, tmp_path: Path) -> None:
    path = tmp_path / "2026-11-20 10.00.00 mine.bsrun"
    save_trace(static, path)
    facts, measured = read_facts(path), measure(static)
    (lane,) = facts.lanes
    assert not facts.race
    assert facts.modes == ("static",)
    assert (lane.requests, lane.completed) == (measured.requests, measured.completed)
    assert (lane.prompt_tokens, lane.output_tokens) == (measured.prompt_tokens, measured.output_tokens)
    assert (lane.duration, lane.throughput) == (measured.duration, measured.output_throughput)
    assert lane.ttft_p95 == measured.ttft.p95
    assert facts.making.model == static.header.model.source
    assert run_title(path) == "mine"
    assert RunFacts.from_json(facts.to_json()) == facts


def test_a_run_is_the_same_run_when_its_file_is_called_otherwise(
    static: Trace, continuous: Trace, tmp_path: Path
) -> None:
    for name, trace in (("a", static), ("b", static), ("c", continuous)):
        save_trace(trace, tmp_path / f"{name}.bsrun")
    one, same, other = (read_facts(tmp_path / f"{name}.bsrun").identity for name in "abc")
    assert one == same != other


def test_the_strip_shows_who_computed_where(static: Trace) -> None:
    from engine.library.strip import COLUMNS, strip_of

    strip = strip_of([static])
    assert strip.cells.shape == (4, COLUMNS)
    assert np.array_equal(Strip.parse(strip.text()).cells, strip.cells)
    span, origin = static.end - (static.origin or 0.0), static.origin or 0.0
    last_writer = np.full((4, COLUMNS), IDLE)
    for step in static.steps:
        begin = int((step.started - origin) / span * COLUMNS)
        end = max(begin + 1, round((step.ended - origin) / span * COLUMNS))
        for request, slot, kind in zip(step.request.tolist(), step.slot.tolist(), step.kind.tolist(), strict=True):
            told = HELD if kind == Kind.HELD else 2 * request + (kind == Kind.PREFILL)
            last_writer[slot, begin:end] = told
    assert np.array_equal(strip.cells, last_writer)
    assert HELD in strip.cells, "a static batch holds finished rows"


def test_a_strip_of_many_slots_and_of_lanes_has_room_for_all(static: Trace, continuous: Trace) -> None:
    from engine.library.strip import LINES, strip_of

    wide = Trace(lane_trace("continuous", slots=64, requests=80, output=(4, 8)))
    assert strip_of([wide]).cells.shape[0] == LINES
    few = Trace(lane_trace("continuous", slots=64, requests=3, output=(4, 8)))
    assert strip_of([few]).cells.shape[0] == 3, "slots that nothing used say nothing"
    both = strip_of([static, continuous]).cells
    assert both.shape[0] == 9, "four slots, a line between, four slots"
    assert (both[4] == IDLE).all()


@pytest.mark.parametrize("text", ["", "1 2", "1 2 x", "9999999 9999999 eJw=", "a b c"])
def test_what_is_no_strip_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Strip.parse(text)


def test_a_child_reads_many_and_tells_of_each(static: Trace, continuous: Trace, tmp_path: Path) -> None:
    save_trace(static, tmp_path / "a.bsrun")
    (tmp_path / "b.bsrun").write_text("no run")
    lanes = tuple(Lane(trace.header.config) for trace in (static, continuous))
    runs = tuple(LaneRun(i, 0, trace=trace) for i, trace in enumerate((static, continuous)))
    save_race(RaceResult(Workload("none", ()), lanes, runs), tmp_path / "c.bsrace")
    heard: dict[str, tuple[RunFacts | None, str]] = {}

    def hear(path: Path, facts: RunFacts | None, problem: str) -> None:
        heard[path.name] = facts, problem

    read_library(sorted(tmp_path.iterdir()), hear, threading.Event())
    assert list(heard) == ["a.bsrun", "b.bsrun", "c.bsrace"]
    assert heard["a.bsrun"] == (read_facts(tmp_path / "a.bsrun"), "")
    assert heard["b.bsrun"][0] is None
    assert "cannot be read as a Batchscope run" in heard["b.bsrun"][1]
    race = heard["c.bsrace"][0]
    assert race is not None
    assert race.race
    assert race.modes == ("static", "continuous")
    assert race.best.mode == "continuous", "joining at every step is quicker"


def test_runs_side_by_side_are_a_race_that_says_what_they_do_not_have_in_common(
    static: Trace, continuous: Trace, tmp_path: Path
) -> None:
    paths = [tmp_path / "2026-11-20 10.00.00 one.bsrun", tmp_path / "two.bsrun", tmp_path / "three.bsrun"]
    for path, trace in zip(paths, (static, continuous, trace_of("continuous", seed=1)), strict=True):
        save_trace(trace, path)
    same = read_side_by_side(paths[:2])
    assert same.differs == ()
    assert [lane.name for lane in same.race.lanes] == ["one", "two"]
    assert [lane.config.mode for lane in same.race.lanes] == ["static", "continuous"]
    assert len(same.race.workload) == 10
    traces = [same.race.traces(lane)[0] for lane in (0, 1)]
    assert [len(trace.records) for trace in traces] == [len(static.records), len(continuous.records)]
    assert read_side_by_side(paths).differs == ("prompts",)
    for wrong in (paths[:1], paths * 2):
        with pytest.raises(InvalidInput, match="two to 4 fit beside each other"):
            read_side_by_side(wrong)


def test_what_differs_is_named_the_gravest_first() -> None:
    one = Making("a", "demo", "none", "here")
    assert differences([one, one]) == ()
    assert differences([one, replace(one, machine="there", prompts="b")]) == ("prompts", "machine")
    assert differences([one, replace(one, quantization="nf4", model="other")]) == ("model", "quantization")


def test_a_trace_counts_the_samples_that_were_asked_for(static: Trace) -> None:
    assert static.samples == sum(view.params.branches for view in static.requests.values()) == 10
