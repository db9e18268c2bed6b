"""The timeline's runs against the records they come from, and its pixels against brute force over all runs."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bench.synthetic_lanes import MODES, lane_trace
from app.inside.timeline.picture.raster import SHARED, raster
from app.inside.timeline.runs import Shade, TimelineCells, shades
from app.inside.timeline.words import cell_words
from app.plot.scales import nice_end, time_ticks
from engine.bench.trace.step_builder import built_step
from engine.trace import Kind, Record, Step

Rows = Sequence[tuple[int, int, Kind, int, int, int]]
Run = tuple[int, int, Shade, float, float]


@cache
def lane(mode: str, seed: int) -> list[Record]:
    """A short lane of four slots."""
    return lane_trace(mode, slots=4, requests=9, seed=seed, lag=seed % 2, output=(1, 30))


@cache
def lane_cells(mode: str, seed: int) -> TimelineCells:
    return fed(lane(mode, seed))


def fed(records: Sequence[Record]) -> TimelineCells:
    cells = TimelineCells()
    cells.feed(records)
    return cells


def runs(cells: TimelineCells) -> list[Run]:
    columns = (cells.slot, cells.request, cells.shade, cells.begins, cells.ends)
    return [(s, r, Shade(min(shade, Shade.AGAIN)), b, e) for s, r, shade, b, e in zip(*(c.tolist() for c in columns))]


def step(begin: float, end: float, rows: Rows, number: int = 0, **more) -> Step:
    """Rows are (slot, request, kind, count, padding, wasted)."""
    names = ("slot", "request", "kind", "count", "padding", "wasted")
    columns = dict(zip(names, zip(*rows))) if rows else dict.fromkeys(names, ())
    return built_step(number, begin, end, **columns, seconds={}, **more)


D, P, H = Kind.DECODE, Kind.PREFILL, Kind.HELD


@given(mode=st.sampled_from(MODES), seed=st.integers(0, 9), cuts=st.lists(st.integers(0, 600), max_size=12))
@settings(max_examples=40)
def test_any_split_of_the_records_gives_the_same_runs(mode: str, seed: int, cuts: list[int]) -> None:
    records = lane(mode, seed)
    whole, parts = lane_cells(mode, seed), TimelineCells()
    edges = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    for begin, end in pairwise(edges):
        parts.feed(records[begin:end])
    assert runs(parts) == runs(whole)
    assert (parts.end, parts.slots, parts.requests) == (whole.end, whole.slots, whole.requests)


@pytest.mark.parametrize("mode", MODES)
def test_every_row_of_every_step_lies_in_a_run_of_its_request(mode: str) -> None:
    records = lane_trace(mode, slots=5, requests=14, seed=3, output=(3, 40), lag=1)
    cells = fed(records)
    seconds = dict.fromkeys(Shade, 0.0)
    for _, _, shade, begin, end in runs(cells):
        seconds[shade] += end - begin
    told = dict.fromkeys(Shade, 0.0)
    for record in records:
        if not isinstance(record, Step):
            continue
        length = record.ended - record.started
        each = shades(record.kind, record.count, record.wasted)
        for row in range(record.rows):
            shade = Shade(min(int(each[row]), Shade.AGAIN))
            share = 0.0 if shade is Shade.GREY else record.padding[row] / (record.padding[row] + record.count[row])
            told[Shade.GREY] += share * length
            told[shade] += (1 - share) * length
            cell = cells.at((record.started + record.ended) / 2, int(record.slot[row]))
            assert cell is not None
            assert (cell.request, cell.kind, cell.count) == (record.request[row], record.kind[row], record.count[row])
    del told[Shade.LINE], seconds[Shade.LINE]
    assert seconds == pytest.approx(told)


def test_runs_of_a_slot_never_overlap() -> None:
    for mode in MODES:
        cells = fed(lane_trace(mode, slots=4, requests=12, seed=1, lag=1))
        for slot in range(cells.slots):
            own = np.flatnonzero(cells.slot == slot)
            order = own[np.argsort(cells.begins[own], kind="stable")]
            assert (cells.ends[order[:-1]] <= cells.begins[order[1:]] + 1e-12).all()


def test_a_decode_goes_on_as_one_run_and_waits_as_a_line() -> None:
    cells = fed([
        step(0.0, 1.0, [(0, 7, P, 9, 0, 0)], 1), step(1.0, 1.5, [(0, 7, D, 1, 0, 0)], 2),
        step(1.6, 2.0, [(0, 7, D, 1, 0, 0)], 3), step(2.0, 5.0, [(1, 8, P, 90, 0, 0)], 4),
        step(5.0, 6.0, [(0, 7, D, 1, 0, 0), (1, 8, D, 1, 0, 0)], 5),
    ])  # fmt: skip
    assert [run for run in runs(cells) if run[0] == 0] == [
        (0, 7, Shade.HATCH, 0.0, 1.0), (0, 7, Shade.SOLID, 1.0, 2.0), (0, 7, Shade.LINE, 2.0, 5.0),
        (0, 7, Shade.SOLID, 5.0, 6.0),
    ]  # fmt: skip
    cell = cells.at(3.0, 0)
    assert cell is not None
    assert cell.kind is None
    assert cell.step == 4
    assert "waits while step 4" in cell_words(cell)


def test_a_slot_that_changes_hands_or_was_preempted_did_not_wait() -> None:
    cells = fed([
        step(0, 1, [(0, 1, D, 1, 0, 0), (1, 2, D, 1, 0, 0)]), step(1, 2, [(2, 3, P, 4, 0, 0)]),
        step(2, 3, [(0, 9, D, 1, 0, 0), (1, 2, P, 5, 0, 0)], preempted=np.array([2], np.int32)),
    ])  # fmt: skip
    assert Shade.LINE not in [shade for _, _, shade, _, _ in runs(cells)]


def test_padding_takes_its_share_at_the_left_of_the_cell() -> None:
    cells = fed([step(2.0, 4.0, [(0, 1, P, 30, 10, 0)]), step(4.0, 5.0, [(0, 1, H, 1, 0, 1)])])
    assert runs(cells) == [
        (0, 1, Shade.GREY, 2.0, 2.5), (0, 1, Shade.HATCH, 2.5, 4.0), (0, 1, Shade.GREY, 4.0, 5.0),
    ]  # fmt: skip


def test_work_done_again_shows_the_share_that_is_new() -> None:
    kind, count = np.array([D] * 5), np.array([2, 4, 5, 64, 4000])
    assert (shades(kind, count, count - 1) - Shade.AGAIN).tolist() == [0, 1, 1, 5, 5]
    assert shades(np.array([D, P, H, D, P]), np.array([1, 9, 1, 1, 8]), np.array([1, 9, 1, 0, 0])).tolist() == [
        Shade.CROSS, Shade.CROSS, Shade.GREY, Shade.SOLID, Shade.HATCH,
    ]  # fmt: skip


def test_a_step_launched_before_the_last_one_ended_begins_when_that_ended() -> None:
    cells = fed([step(0.0, 1.0, [(0, 1, D, 1, 0, 0)]), step(0.2, 1.5, [(0, 2, D, 1, 0, 0)])])
    assert runs(cells) == [(0, 1, Shade.SOLID, 0.0, 1.0), (0, 2, Shade.SOLID, 1.0, 1.5)]
    cell = cells.at(0.5, 0)
    assert cell is not None
    assert cell.request == 1


def test_an_origin_moves_every_run() -> None:
    records = lane("continuous", 1)
    moved = TimelineCells()
    moved.feed(records, -2.5)
    assert [run[:3] for run in runs(moved)] == [run[:3] for run in runs(fed(records))]
    np.testing.assert_allclose(moved.begins - 2.5, lane_cells("continuous", 1).begins)
    cell = moved.at(2.5 + 1e-6, 0)
    assert cell is not None
    assert cell.begin == 2.5


def test_steps_without_rows_and_rows_without_a_slot_draw_nothing() -> None:
    cells = fed([step(0, 1, []), step(1, 2, [(-1, 4, D, 1, 0, 0)])])
    assert runs(cells) == []
    assert cells.end == 2
    assert cells.at(1.5, 0) is None


def test_a_request_is_found_from_its_first_cell_to_its_last() -> None:
    cells = fed(lane_trace("continuous", slots=4, requests=9, seed=2))
    own = [r for r in runs(cells) if r[1] == 5]
    assert cells.span(5) == (min(r[3] for r in own), max(r[4] for r in own))
    assert cells.span(77) is None


# -- pixels ----------------------------------------------------------------------------------------------------------


def brute_force(
    cells: TimelineCells, begin: float, end: float, columns: int, rows: int, until: float
) -> tuple[np.ndarray, np.ndarray]:
    """The owners of pixels by runs of a pixel or more, and the exact share of each shade in each pixel."""
    owner = np.full((rows, columns), -1)
    shares = np.zeros((SHARED, rows, columns))
    scale = columns / (end - begin)
    for i, (slot, _, shade, b, e) in enumerate(runs(cells)):
        low, high = max(0.0, (b - begin) * scale), min(columns, (min(e, until) - begin) * scale)
        if high <= low or slot >= rows:
            continue
        if high - low >= 1:
            owner[slot, int(np.floor(low + 0.5)) : int(np.floor(high + 0.5))] = i
        for x in range(int(low), min(columns, int(np.ceil(high)))):
            covered = min(high, x + 1) - max(low, x)
            shares[Shade.CROSS if shade >= Shade.AGAIN else shade, slot, x] += max(0.0, covered)
    return owner, shares


@given(
    mode=st.sampled_from(MODES), seed=st.integers(0, 5), left=st.floats(0, 0.9), width=st.floats(0.001, 1.2),
    columns=st.integers(1, 200), cursor=st.none() | st.floats(0, 1.1),
)  # fmt: skip
@settings(max_examples=60)
def test_what_is_in_sight_is_what_brute_force_draws(
    mode: str, seed: int, left: float, width: float, columns: int, cursor: float | None
) -> None:
    cells = lane_cells(mode, seed)
    begin, end = left * cells.end, (left + width) * cells.end
    until = np.inf if cursor is None else cursor * cells.end
    seen = raster(cells, begin, end, columns, cells.slots, until=until)
    owner, shares = brute_force(cells, begin, end, columns, cells.slots, until)
    np.testing.assert_array_equal(np.where(owner >= 0, seen.owner, owner), owner)
    np.testing.assert_allclose(seen.shares, shares.reshape(SHARED, -1)[:, seen.mixed], atol=2e-3)
    # a pixel that no narrow run touches is whole: of the run that owns it, or empty
    whole = np.setdiff1d(np.arange(owner.size), seen.mixed)
    np.testing.assert_array_equal(seen.owner.ravel()[whole], owner.ravel()[whole])
    occupied = shares.sum(axis=0).ravel()
    assert (seen.owner.ravel()[seen.mixed] >= 0).all()
    assert (occupied[seen.owner.ravel() >= 0] > 0).all()


def test_slots_that_share_a_line_of_pixels_are_all_there() -> None:
    cells = fed([step(0, 1, [(s, s + 1, D, 1, 0, 0) for s in range(10)])])
    seen = raster(cells, 0, 1, 8, 4, slots_a_row=3)
    assert seen.owner.shape == (4, 8)
    assert {int(cells.slot[run]) // 3 for run in np.unique(seen.owner)} == {0, 1, 2, 3}


def test_a_run_that_follows_another_has_a_head_where_there_is_room() -> None:
    cells = fed([
        step(0, 4, [(0, 1, P, 9, 0, 0), (1, 2, P, 9, 0, 0)]), step(4, 8, [(0, 1, D, 1, 0, 0)]),
        step(8, 9, [(0, 1, D, 1, 0, 0)]),
    ])  # fmt: skip
    assert raster(cells, 0, 9, 90, 2).heads.tolist() == [40]
    assert raster(cells, 0, 9, 9, 2, gap=6).heads.tolist() == []


def test_nothing_is_in_sight_before_and_after_the_run() -> None:
    cells = fed(lane_trace("static", slots=3, requests=5))
    for begin, end in ((cells.end, cells.end + 1), (-2.0, -1.0)):
        assert (raster(cells, begin, end, 50, 3).owner == -1).all()
    assert (raster(TimelineCells(), 0, 1, 50, 3).owner == -1).all()


# -- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "nice"), [(31.2, 32), (13.1, 14), (98.0, 98), (98.1, 100), (1.0, 1.0), (0.013, 0.014), (0, 10)]
)
def test_an_axis_ends_soon_after_the_run(end: float, nice: float) -> None:
    assert nice_end(end) == pytest.approx(nice)


@given(begin=st.floats(0, 1e4), span=st.floats(1e-4, 1e4), count=st.floats(1, 20))
def test_ticks_are_round_in_range_and_not_too_many(begin: float, span: float, count: float) -> None:
    end = begin + span
    ticks = time_ticks(begin, end, count)
    assert len(ticks) <= count + 1.01
    assert all(begin <= time <= end for time, _ in ticks)
    assert len({words for _, words in ticks}) == len(ticks)


def test_a_tooltip_tells_request_kind_step_tokens_and_time() -> None:
    cells = fed([step(0.5, 0.75, [(3, 12, P, 96, 316, 0)], 41), step(0.75, 0.78, [(3, 12, D, 300, 0, 299)], 42)])
    prefill, again = cells.at(0.6, 3), cells.at(0.76, 3)
    assert prefill is not None
    assert again is not None
    assert cell_words(prefill).split("\n") == [
        "request 12 · slot 4", "prefill, 96 tokens + 316 padding", "step 41 · 0.500–0.750 s, 250 ms",
    ]  # fmt: skip
    assert "300 tokens, 299 of them again" in cell_words(again)
    assert "thrown away" in cell_words(replace(again, count=1, wasted=1))
    assert "held" in cell_words(replace(again, kind=H))
