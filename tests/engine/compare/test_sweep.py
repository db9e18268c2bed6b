"""Sweeps: which points there are, where the curve bends, what is recommended and why, and how it is written."""

import csv
import io
import json
import threading
from dataclasses import replace

import pytest

from engine import Engine, InvalidInput, SamplingParams, parse_lanes
from engine.compare import LaneFailed, LaneStarted
from engine.compare.sweep import Sweep, SweepEvent, SweepFinished, SweepOutcome, SweepResult, knee, sizes_up_to
from engine.trace.measures.metrics import measure
from engine.trace.measures.slo import Slo
from engine.trace.measures.spread import Spread
from engine.workloads import demo_workload
from tests.engine.compare.test_race import Lender
from tests.engine.trace.hand_made import static_batch

WORKLOAD = demo_workload(4, SamplingParams(max_tokens=8, temperature=0, ignore_eos=True))
PLAIN = measure(static_batch([4], [3]))


def result(points: list[tuple[int, float, float]], lanes: str = "static", slo: Slo | None = None) -> SweepResult:
    """Points of (batch size, tokens a second, p99 ITL in seconds), measured by the same lanes."""
    sweep = Sweep(WORKLOAD, parse_lanes(lanes), sizes=[size for size, _, _ in points], slo=slo)
    told = {size: (rate, itl) for size, rate, itl in points}
    outcomes = []
    for point in sweep.points:
        rate, itl = told[int(point.setting)]
        metrics = replace(PLAIN, output_throughput=rate, itl=Spread(itl / 2, itl / 2, itl, itl))
        outcomes.append(SweepOutcome(point, (metrics,)))
    return SweepResult(WORKLOAD, sweep.lanes, False, tuple(outcomes), sweep.slo)


CURVE = [
    (1, 100.0, 0.010),
    (2, 195.0, 0.0105),
    (4, 380.0, 0.011),
    (8, 700.0, 0.012),
    (16, 800.0, 0.021),
    (32, 840.0, 0.040),
]


def test_the_knee_lies_farthest_above_the_chord() -> None:
    assert knee([1, 2, 4, 8, 16, 32], [100, 195, 380, 700, 800, 840]) == 3
    assert knee([1, 2, 4, 8], [100, 100, 100, 100]) is None, "flat"
    assert knee([1, 2, 4, 8], [10, 20, 40, 80]) is None, "still growing with the batch"
    assert knee([1, 2, 4, 8], [10, 20, 30, 40]) is None, "along the chord"
    assert knee([1, 2, 4], [10, 50, 5]) == 1, "a peak is a knee"
    assert knee([1, 2], [10, 50]) is None
    assert knee([], []) is None


def test_without_an_slo_the_knee_is_recommended() -> None:
    found = result(CURVE)
    bend = found.knee(0)
    assert bend is not None
    assert bend.point.setting == 8
    advice = found.recommend(0)
    assert advice.outcome is bend
    assert advice.reason == "8: 700 tok/s, p99 ITL 12.0 ms (the knee); 16 gives 14 % more but changes p99 ITL by +75 %"
    assert found.marks(bend) == ["knee", "recommended"]


def test_with_an_slo_the_quickest_that_keeps_it_is_recommended() -> None:
    found = result(CURVE, slo=Slo(itl=0.025))
    advice = found.recommend(0)
    assert advice.outcome is not None
    assert advice.outcome.point.setting == 16
    assert advice.reason == "16: 800 tok/s, p99 ITL 21.0 ms; 32 gives 5 % more but breaks p99 ITL ≤ 25.0 ms"
    strict = result(CURVE, slo=Slo(itl=0.001)).recommend(0)
    assert strict.outcome is None
    assert strict.reason == "none keeps p99 ITL ≤ 1.0 ms; the nearest is 32 with p99 ITL 40.0 ms"
    loose = result(CURVE, slo=Slo(itl=1)).recommend(0)
    assert loose.reason == "32: 840 tok/s, p99 ITL 40.0 ms; the largest that was tried"


def test_a_curve_without_a_knee_is_taken_to_its_end() -> None:
    advice = result([(1, 10.0, 0.01), (2, 20.0, 0.01), (4, 40.0, 0.01)]).recommend(0)
    assert advice.reason == "4: 40.0 tok/s, p99 ITL 10.0 ms; the largest that was tried"


def test_requests_that_were_not_completed_break_every_limit() -> None:
    point = Sweep(WORKLOAD, parse_lanes("static"), sizes=[2]).points[0]
    assert SweepOutcome(point, (replace(PLAIN, completed=0),)).broken(Slo(ttft=99, e2e=99)) == ["ttft", "e2e"]


def test_what_is_written_says_the_same() -> None:
    found = result(CURVE, "static,continuous:prefix", Slo(itl=0.025))
    failed = SweepOutcome(Sweep(WORKLOAD, parse_lanes("static"), sizes=[64]).points[0], (), "out of memory")
    found = replace(found, outcomes=(*found.outcomes, failed))
    text = found.text()
    line = next(x for x in text.splitlines() if x.startswith("static ") and " 16 " in x)
    assert "800 tok/s" in line
    assert "21.0 ms" in line
    assert line.endswith("recommended")
    assert "failed: out of memory" in text
    assert "continuous + prefix: 16: 800 tok/s" in text
    data = json.loads(found.json())
    rows = list(csv.DictReader(io.StringIO(found.csv())))
    assert len(rows) == len(data["points"]) == 13
    for row, point in zip(rows, data["points"]):
        assert (float(row["batch"]), row["error"], row["marks"].split()) == (
            point["setting"], point["error"], point["marks"],
        )  # fmt: skip
        if point["measures"]:
            assert float(row["itl.p99"]) == point["measures"]["itl.p99"]
    assert found.markdown().count("\n| ") == 1 + 13


def test_sizes_double_up_to_the_largest() -> None:
    assert [sizes_up_to(n) for n in (1, 2, 6, 8)] == [(1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]


def test_rates_draw_the_same_arrivals_for_every_lane() -> None:
    sweep = Sweep(WORKLOAD, parse_lanes("static:4,continuous"), rates=[2, 8], seed=3)
    times = [[a.time for a in p.workload.arrivals] for p in sweep.points]
    assert times[0] == times[1]
    assert times[2] == times[3]
    assert times[0] == pytest.approx([4 * t for t in times[2]])
    assert [(p.series, p.setting) for p in sweep.points] == [(0, 2), (1, 2), (0, 8), (1, 8)]


def test_a_model_is_loaded_once_a_lane() -> None:
    sweep = Sweep(WORKLOAD, parse_lanes("static,static:model=/other"), sizes=[1, 2])
    assert [(p.series, p.setting) for p in sweep.points] == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_a_sweep_measures_each_point(large_demo: Engine) -> None:
    told: list[SweepEvent] = []
    sweep = Sweep(WORKLOAD, parse_lanes("continuous"), sizes=[4, 1, 2], repeats=2)
    found = sweep.play(Lender(large_demo), told.append, threading.Event())
    assert told[-1] == SweepFinished(found)
    assert [(e.lane, e.repeat) for e in told if isinstance(e, LaneStarted)] == [
        (i, r) for i in range(3) for r in (0, 1)
    ]
    assert [(o.point.setting, len(o.metrics)) for o in found.series(0)] == [(1, 2), (2, 2), (4, 2)]
    assert [o.metrics[0].slots for o in found.series(0)] == [1, 2, 4]
    assert not found.cancelled
    assert found.recommend(0).outcome is not None


def test_points_that_fail_are_kept_and_a_cancel_keeps_the_rest(large_demo: Engine) -> None:
    cancelled, told = threading.Event(), list[SweepEvent]()

    def tell(event: SweepEvent) -> None:
        told.append(event)
        if isinstance(event, LaneStarted) and event.lane == 4:
            cancelled.set()

    lanes = parse_lanes("continuous:model=/no/model,continuous")
    long = demo_workload(2, SamplingParams(max_tokens=300, temperature=0, ignore_eos=True))
    found = Sweep(long, lanes, sizes=[1, 2, 4]).play(Lender(large_demo), tell, cancelled)
    assert [e.error for e in told if isinstance(e, LaneFailed)] == ["no such model /no/model"] * 3
    assert [o.error != "" for o in found.outcomes] == [True, True, True, False]
    assert found.cancelled
    assert found.recommend(0).reason == "nothing was measured"


def test_a_cancel_in_the_last_repeat_of_all_is_a_cancel(large_demo: Engine) -> None:
    cancelled, begun = threading.Event(), []
    long = demo_workload(4, SamplingParams(max_tokens=300, temperature=0, ignore_eos=True))

    def tell(event: SweepEvent) -> None:
        begun.append(isinstance(event, LaneStarted))
        if sum(begun) == 2:
            cancelled.set()

    found = Sweep(long, parse_lanes("continuous"), sizes=[4], repeats=2).play(Lender(large_demo), tell, cancelled)
    assert [len(o.metrics) for o in found.outcomes] == [1]
    assert found.cancelled


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sizes": [1], "rates": [1.0]}, "one of the two"),
        ({}, "one of the two"),
        ({"sizes": [0]}, "size=0"),
        ({"rates": [float("inf")]}, "rate=inf"),
        ({"rates": [-1.0]}, "rate=-1"),
        ({"sizes": [1], "lanes": parse_lanes("recompute")}, "sweep its rates"),
        ({"sizes": [1], "lanes": ()}, "no lanes"),
        ({"sizes": [1], "repeats": 0}, "repeats=0"),
        ({"sizes": [1], "kv_tokens": 4, "kv_memory": 4}, "give one"),
        ({"sizes": [1], "workload": demo_workload(0)}, "no prompts"),
    ],
)
def test_what_cannot_be_swept_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Sweep(**{"workload": WORKLOAD, "lanes": parse_lanes("static"), **options})  # type: ignore[arg-type]
