"""The charts' numbers against brute force over all records."""

import numpy as np
import pytest

from app.bench.synthetic import synthetic_trace
from app.play.charts.series import BIN, ITL_SPAN, TTFT_SPAN, ChartSeries, Extremes
from app.plot.decimate import decimate, drawn_order
from app.plot.scales import nice_top
from engine import Trace
from engine.trace import Record, Step, Submitted, TallyIndex, Telemetry


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return synthetic_trace(streams=12, tokens_per_second=400, seconds=20, seed=5, faults=0.05)


def tallied(records: list[Record]) -> TallyIndex:
    tally = TallyIndex()
    tally.feed(records)
    return tally


@pytest.fixture(scope="module")
def series(records: list[Record]) -> ChartSeries:
    series, tally = ChartSeries(), TallyIndex()
    for begin in range(0, len(records), 7):
        tally.feed(records[begin : begin + 7])
        series.feed(records[begin : begin + 7], tally)
    for latency in (series.ttft, series.itl):
        latency.settle(series.now)
    return series


@pytest.mark.parametrize(("count", "columns"), [(10, 20), (100, 7), (1000, 64), (1001, 64), (65, 64)])
def test_decimation_keeps_the_smallest_and_largest_of_every_run(count: int, columns: int) -> None:
    rng = np.random.default_rng(count)
    low = rng.normal(size=count)
    low[rng.random(count) < 0.2] = np.nan
    high = low + rng.random(count)
    small, large, starts = decimate(low, high, columns)
    assert len(small) == len(large) == len(starts) == min(count, columns)
    ends = np.append(starts[1:], count)
    for i, (a, b) in enumerate(zip(starts, ends, strict=True)):
        known = ~np.isnan(low[a:b])
        if known.any():
            assert small[i] == low[a:b][known].min()
            assert large[i] == high[a:b][known].max()
        else:
            assert np.isnan(small[i])
    assert np.nanmin(small) == np.nanmin(low)
    assert np.nanmax(large) == np.nanmax(high)


def test_extremes_hold_a_value_until_the_next_one() -> None:
    bins = Extremes()
    for time, value in ((0.1, 5), (0.2, 9), (0.9, 2), (1.05, 4)):
        bins.add(time, value)
    assert bins[0].tolist() == [5, 9, 9, 2, 2]
    assert bins[1].tolist() == [9, 9, 9, 9, 4]
    assert bins[2].tolist() == [9, 9, 9, 2, 4]


def test_throughput_is_the_tokens_of_the_last_second(records: list[Record], series: ChartSeries) -> None:
    steps = [r for r in records if isinstance(r, Step)]
    rate = series.rate()
    for place in range(8, len(rate) - 1, 5):
        begin, end = (place - 3) * BIN, (place + 1) * BIN
        assert rate[place] == sum(len(s.token) for s in steps if begin <= s.ended < end)


def samples(records: list[Record]) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    submitted: dict[int, float] = {}
    last: dict[int, float] = {}
    ttft, itl = [], []
    for record in records:
        if isinstance(record, Submitted):
            submitted[record.request] = record.time
        elif isinstance(record, Step):
            for row in record.token_row.tolist():
                request = int(record.request[row])
                if request in last:
                    itl.append((record.ended, record.ended - last[request]))
                else:
                    ttft.append((record.ended, record.ended - submitted[request]))
                last[request] = record.ended
    return ttft, itl


@pytest.mark.parametrize("name", ["ttft", "itl"])
def test_bands_are_numpys_percentiles_of_the_window(records: list[Record], series: ChartSeries, name: str) -> None:
    pooled = samples(records)[name == "itl"]
    span = ITL_SPAN if name == "itl" else TTFT_SPAN
    columns = getattr(series, name)
    checked = 0
    for place in range(2, columns.count - 1, 3):
        begin, end = (place + 1) * BIN - span, (place + 1) * BIN
        window = [value for time, value in pooled if begin <= time < end]
        if window:
            expected = np.percentile(window, (50, 95, 99))
            np.testing.assert_allclose([columns[i][place] for i in range(3)], expected, rtol=1e-5)
            checked += 1
    assert checked > 10


def test_the_pooled_samples_are_those_of_the_traces_metrics(records: list[Record]) -> None:
    ttft, itl = samples(records)
    views = Trace(records).requests.values()
    assert sorted(v for _, v in ttft) == sorted(v.ttft for v in views if v.ttft is not None)
    gaps = np.concatenate([np.diff(v.token_times) for v in views])
    np.testing.assert_allclose(sorted(v for _, v in itl), sorted(gaps))


def test_queue_blocks_and_machine_are_the_last_of_each_bin(records: list[Record], series: ChartSeries) -> None:
    steps = [r for r in records if isinstance(r, Step)]
    for place in range(0, series.running.count, 9):
        before = [s for s in steps if s.ended < (place + 1) * BIN]
        if before:
            assert series.running[2][place] == before[-1].running
            assert series.waiting[2][place] == before[-1].waiting
            assert series.used[2][place] == series.blocks - before[-1].free_blocks
    told = [r for r in records if isinstance(r, Telemetry)]
    assert series.cpu.last == pytest.approx(told[-1].cpu_percent, rel=1e-6)
    assert series.gpu.count == 0


def test_a_silence_of_hours_costs_no_more_than_its_bins() -> None:
    series = ChartSeries()
    records = synthetic_trace(streams=2, tokens_per_second=20, seconds=2, faults=0)
    series.feed(records, tallied(records))
    series.now = 3600.0
    for latency in (series.ttft, series.itl):
        latency.settle(series.now)
    assert np.isnan(series.itl[0][int(100 / BIN) : -1]).all()


def test_forgotten_on_reset(records: list[Record]) -> None:
    series = ChartSeries()
    series.feed(records, tallied(records))
    series.reset()
    assert series.now == 0.0
    assert len(series.rate()) == 0


@pytest.mark.parametrize(
    ("value", "top"),
    [(0, 1), (0.7, 0.8), (1, 1), (1.01, 1.5), (23, 30), (1238, 1500), (float("nan"), 1), (30000, 30000)],
)
def test_axes_end_at_pleasant_numbers(value: float, top: float) -> None:
    assert nice_top(value) == pytest.approx(top)


def test_a_falling_line_goes_down_through_each_bin_and_a_rising_one_up() -> None:
    low, high = np.array([64.0, 40.0, 0.0, 0.0, 5.0]), np.array([64.0, 64.0, 40.0, 0.0, 9.0])
    first, second = drawn_order(low, high)
    assert np.column_stack((first, second)).ravel().tolist() == [64, 64, 64, 40, 40, 0, 0, 0, 5, 9]
