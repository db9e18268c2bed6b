"""What the race charts draw, against the trace's own metrics and brute force."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.bench.synthetic import synthetic_trace
from app.bench.synthetic_lanes import MODES, lane_trace
from app.compare.race.series import LaneSeries, jitter, ratio_axis, round_ratio, stairs, thinned
from app.plot.plot import apart
from engine import Trace
from engine.bench.trace.step_builder import built_step
from engine.trace import Record, Step, Submitted


def fed(records: Sequence[Record], origin: float = 0.0) -> LaneSeries:
    series = LaneSeries()
    series.feed(records, origin)
    return series


@pytest.mark.parametrize("mode", MODES)
def test_waits_and_gaps_are_those_of_the_traces_metrics(mode: str) -> None:
    records = lane_trace(mode, slots=4, requests=11, seed=2, output=(1, 30), prompt=(4, 200))
    series, views = fed(records), Trace(records).requests.values()
    assert sorted(series.ttft.values) == pytest.approx(sorted(v.ttft for v in views if v.ttft is not None))
    gaps = np.concatenate([np.diff(v.token_times) for v in views])
    assert sorted(series.itl.values) == pytest.approx(sorted(gaps))
    assert series.tokens.values[-1] == sum(len(v.tokens) for v in views)
    assert series.over


@given(cuts=st.lists(st.integers(0, 400), max_size=8))
def test_any_split_of_the_records_gives_the_same_series(cuts: list[int]) -> None:
    records = lane_trace("continuous", slots=3, requests=6, output=(2, 20))
    whole, parts = fed(records), LaneSeries()
    for begin, end in pairwise([0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]):
        parts.feed(records[begin:end])
    for name in ("step_time", "tokens", "running", "waiting", "ttft_time", "ttft", "itl_time", "itl"):
        np.testing.assert_array_equal(getattr(whole, name).values, getattr(parts, name).values)


def test_a_cursor_counts_what_had_come_by_then() -> None:
    series = fed(lane_trace("static", slots=4, requests=8))
    times = series.itl_time.values
    assert (np.diff(times) >= 0).all()
    for cursor in (-1.0, 0.0, float(times[3]), 1.23, series.now):
        assert series.count(series.itl_time, cursor) == (times <= cursor).sum()
    assert series.count(series.itl_time, None) == len(times)


def test_an_origin_moves_every_time_and_changes_no_length() -> None:
    records = lane_trace("continuous", slots=3, requests=5)
    one, other = fed(records), fed(records, 0.25)
    np.testing.assert_allclose(one.step_time.values - 0.25, other.step_time.values)
    np.testing.assert_allclose(one.ttft.values, other.ttft.values)
    assert other.now == pytest.approx(one.now - 0.25)


def test_samples_of_one_prompt_have_gaps_of_their_own() -> None:
    records = synthetic_trace(streams=1, tokens_per_second=20, seconds=1, requests=1, faults=0)
    submitted = next(r for r in records if isinstance(r, Submitted))
    steps = [r for r in records if isinstance(r, Step) and len(r.token)][:4]
    params = submitted.params.__class__(max_tokens=200, n=2)
    both = [built_step(s.step, s.started, s.ended, [int(s.request[0])] * 2, branch=[0, 1], token=[0, 0]) for s in steps]
    series = fed([Submitted(submitted.time, submitted.request, "", submitted.token_ids, params), *both])
    assert series.ttft.count == 1
    assert series.itl.count == 2 * (len(steps) - 1)


def test_steps_of_requests_that_were_never_submitted_count_their_tokens() -> None:
    steps = [r for r in lane_trace("static", slots=2, requests=2) if isinstance(r, Step)]
    series = fed(steps)
    assert series.tokens.values[-1] == sum(len(s.token) for s in steps)
    assert series.ttft.count == 0
    assert series.itl.count > 0


@given(st.lists(st.floats(1e-4, 10), min_size=0, max_size=4000), st.integers(40, 600))
def test_thinning_keeps_the_extremes_and_stays_within_its_limit(values: list[float], most: int) -> None:
    places = thinned(np.array(values), most)
    assert len(places) <= max(most, 0)
    assert len(np.unique(places)) == len(places)
    if values:
        kept = np.array(values)[places]
        assert kept.max() == max(values)
        assert kept.min() == min(values)


def test_dots_stay_where_they_are_while_more_come() -> None:
    values = np.random.default_rng(1).random(1500)
    before, after = set(thinned(values[:1400]).tolist()), set(thinned(values).tolist())
    assert len(before & after) > 0.95 * len(before)
    np.testing.assert_array_equal(jitter(np.arange(50)), jitter(np.arange(90))[:50])
    spread = jitter(np.arange(2000))
    assert 0 <= spread.min() < 0.02 < 0.98 < spread.max() < 1
    assert abs(np.corrcoef(spread[1:], spread[:-1])[0, 1]) < 0.1


@given(
    gaps=st.lists(st.floats(1e-4, 0.5), min_size=1, max_size=400),
    columns=st.integers(1, 60), seed=st.integers(0, 99),
)  # fmt: skip
def test_stairs_pass_every_columns_extremes_and_hold_values(gaps: list[float], columns: int, seed: int) -> None:
    times = np.cumsum(gaps)
    values = np.random.default_rng(seed).integers(0, 50, len(times))
    end = float(times[-1]) + 1
    x, y = stairs(times, values, columns, end)
    assert (np.diff(x) >= 0).all()
    assert (x[0], y[0]) == (0, 0)
    assert (x[-1], y[-1]) == (end, values[-1])
    assert len(x) <= 4 * max(columns, 1) + 4 or len(times) <= 2 * columns
    assert y.max() == max(values.max(), 0)
    assert set(y) <= {0, *values}


def test_a_wait_is_a_level_stretch_and_no_slope() -> None:
    x, y = stairs(np.array([1.0, 2.0, 8.0]), np.array([5, 10, 15]), 400, 9.0)
    assert list(zip(x, y)) == [(0, 0), (1, 0), (1, 5), (2, 5), (2, 10), (8, 10), (8, 15), (9, 15)]


@example(low=0.5, factor=1.0)
@given(low=st.floats(1e-5, 1e3), factor=st.floats(1, 1e4))
def test_a_ratio_axis_holds_all_values_and_is_not_much_wider(low: float, factor: float) -> None:
    begin, end = ratio_axis(low, low * factor)
    assert begin <= low * (1 + 1e-6)
    assert end >= low * factor * (1 - 1e-6)
    assert end / begin <= 6.3 * factor * 1.01
    assert round_ratio(begin) == pytest.approx(begin)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_labels_move_apart_and_keep_their_order(wanted: list[float]) -> None:
    places = apart(wanted, 12, 0, 110)
    order = np.argsort(wanted, kind="stable")
    moved = np.array(places)[order]
    assert (np.diff(moved) >= 12 - 1e-9).all()
    assert moved[-1] <= 110
    if len(wanted) == 1:
        assert places == wanted
