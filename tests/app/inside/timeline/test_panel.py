"""The timeline panel against the records of real runs, reckoned anew in plain arithmetic."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app import storage
from app.bench.synthetic import synthetic_trace
from app.bench.synthetic_lanes import MODES, lane_trace
from app.inside.timeline.axis import Axis, places_of, times_of
from app.inside.timeline.marks import Mark, TimelineMarks
from app.inside.timeline.panel import TimelinePanel
from app.inside.timeline.picture.raster import raster
from app.inside.timeline.picture.tracks import crisp, host_shares, stacked, token_scale
from app.inside.timeline.runs import Shade, TimelineCells
from app.inside.timeline.steps import LAUNCH, PHASES, TOKENS, TimelineSteps
from app.inside.timeline.view import LEAPS
from app.inside.timeline.words import length_words
from app.plot.scales import nice_end
from app.ui.look import theme
from engine import Engine, EngineConfig, SamplingParams, Submission, Trace, load_trace, load_workload, save_trace
from engine.trace import Ended, FinishReason, Kind, RequestIndex, Step, Submitted
from tests.app.contrast import contrast
from tests.app.made_up_gpu import on_gpu
from tests.app.painted_words import painted_words

Open = Callable[[Trace], TimelinePanel]


@pytest.fixture(scope="module")
def runs(engine: Engine) -> dict[str, Trace]:
    """A run that preempts, one that shares prefixes and one of static batches."""
    token = engine.trace.header.model.kv_token_bytes
    preempting = EngineConfig(mode="continuous", max_running=8, kv_memory=16 * 14 * token)
    prompts = [Submission(f"Once upon a time there was a fox number {i}.", params(60)) for i in range(8)]
    traces = {}
    for name, config, workload in (
        ("shared", EngineConfig(mode="chunked", max_running=4, prefix_caching=True), "shared-system-prompt"),
        ("static", EngineConfig(mode="static", max_running=4), "mixed-lengths"),
        ("chunked", EngineConfig(mode="chunked", max_running=8, token_budget=64, depth=1), "burst"),
    ):
        traces[name] = engine.run(load_workload(workload, count=6), config).result()
    trace = traces["preempting"] = engine.begin(preempting)
    for stream in engine.submit_many(prompts):
        stream.result()
    stream = engine.submit("A long story, please.", params(150))
    next(iter(stream))
    engine.cancel([stream.request])
    stream.result()
    for trace in traces.values():
        trace.complete = True
    return traces


def params(tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)


@pytest.fixture
def opened(open_panel) -> Open:
    return lambda trace, width=1000, height=420: open_panel(TimelinePanel, trace, width, height)


def steps_of(trace: Trace) -> list[Step]:
    return [record for record in trace.records if isinstance(record, Step)]


def origin_of(trace: Trace) -> float:
    return next(record.time for record in trace.records if isinstance(record, Submitted))


def told(panel: TimelinePanel, kind: Mark) -> list[tuple[float, int, int]]:
    """Time in the trace, slot and request of all marks of a kind."""
    marks = panel.marks.marks()
    marks = marks.where(marks.kind == kind)
    rows = zip((marks.time + panel.history.origin).tolist(), marks.slot.tolist(), marks.request.tolist())
    return [(round(time, 9), slot, request) for time, slot, request in rows]


def picture(widget: QWidget) -> QImage:
    return widget.grab().toImage()


# -- marks and stalls -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["preempting", "shared", "static", "chunked"])
def test_marks_are_where_the_records_say(runs: dict[str, Trace], opened: Open, name: str) -> None:
    trace = runs[name]
    panel = opened(trace)
    submits, firsts, hits, preempted, ends = [], [], [], [], []
    slots: dict[int, int] = {}
    emitted: set[int] = set()
    before = -1.0
    for record in trace.records:
        match record:
            case Submitted():
                submits.append((round(record.time, 9), -1, record.request))
            case Step():
                begin = round(max(record.started, before), 9)
                for request in record.preempted.tolist():
                    preempted.append((begin, slots.pop(request, -1), request))
                for row, request in enumerate(record.request.tolist()):
                    slots[request] = int(record.slot[row])
                    if len(record.reused) and record.reused[row]:
                        hits.append((begin, slots[request], request))
                for row in record.token_row.tolist():
                    request = int(record.request[row])
                    if request not in emitted:
                        emitted.add(request)
                        firsts.append((round(record.ended, 9), slots[request], request))
                before = record.ended
            case Ended():
                ends.append((round(record.time, 9), slots.get(record.request, -1), record.request, record.reason))
            case _:
                pass
    assert told(panel, Mark.SUBMITTED) == submits
    assert told(panel, Mark.FIRST_TOKEN) == firsts
    assert told(panel, Mark.PREFIX_HIT) == hits
    assert told(panel, Mark.PREEMPTED) == preempted
    assert told(panel, Mark.CANCELLED) == [end[:3] for end in ends if end[3] is FinishReason.CANCELLED]
    assert told(panel, Mark.FINISHED) == [
        end[:3] for end in ends if end[3] in (FinishReason.STOP, FinishReason.LENGTH)
    ]  # fmt: skip
    assert bool(preempted) == (name == "preempting")
    assert bool(hits) == (name == "shared")
    if name == "preempting":
        assert FinishReason.CANCELLED in [end[3] for end in ends]


def test_an_error_has_its_mark() -> None:
    marks = TimelineMarks()
    marks.end(Ended(3.0, 7, FinishReason.ERROR, error="not finite"), 1.0)
    assert marks.kinds == [Mark.ERROR]
    assert marks.marks().time.tolist() == [2.0]
    assert len(marks.marks(2.5, 9.0)) == 0


def gaps_of(trace: Trace) -> list[tuple[int, float, float]]:
    """Every gap between two emissions of a request, as its token times tell."""
    index = RequestIndex()
    for record in trace.records:
        index.feed(record)
    return [
        (view.request, begin, end)
        for view in index.requests.values()
        for sample in view.samples
        for begin, end in pairwise(sorted(set(sample.token_times)))
    ]


@pytest.mark.parametrize("seconds", [None, 0.02, 0.1])
@pytest.mark.parametrize("name", ["preempting", "chunked", "generated"])
def test_stalls_are_the_gaps_over_the_threshold(
    runs: dict[str, Trace], opened: Open, name: str, seconds: float | None
) -> None:
    trace = runs.get(name) or Trace(lane_trace("continuous", slots=6, requests=30, prompt=(40, 900)))
    trace.complete = True
    panel = opened(trace)
    panel.set_threshold(seconds)
    panel.scope.catch_up()
    gaps = gaps_of(trace)
    threshold = panel.marks.threshold
    if seconds is None:
        median = float(np.median([end - begin for _, begin, end in gaps]))
        assert threshold == pytest.approx(max(0.05, 4 * median), rel=0.01)
    else:
        assert threshold == seconds
    expected = sorted((r, round(b, 9), round(e, 9)) for r, b, e in gaps if e - b > threshold)
    stalls, origin = panel.marks.stalls(), panel.history.origin
    begins, ends = (stalls.begin + origin).tolist(), (stalls.end + origin).tolist()
    rows = zip(stalls.request.tolist(), begins, ends)
    assert sorted((r, round(b, 9), round(e, 9)) for r, b, e in rows) == expected
    assert (stalls.shown >= stalls.begin).all()
    if name == "generated":
        assert expected
    if expected:
        late = expected[0][2] - origin - 1e-4  # it may have got its slot back only then
        near = panel.marks.stalls(late, late + 1e-5)
        assert expected[0][0] in near.request.tolist()


def test_a_stall_says_its_length_once_the_cursor_has_passed_it(opened: Open) -> None:
    trace = Trace(lane_trace("continuous", slots=2, requests=12, prompt=(400, 900), output=(4, 20)))
    trace.complete = True
    panel = opened(trace, 2000)
    panel.set_threshold(0.02)
    panel.scope.catch_up()

    def said() -> Counter[str]:
        return Counter(word.text for word in painted_words(panel.view) if word.text in lengths)

    stalls = panel.marks.stalls()
    lengths = {length_words(length) for length in (stalls.end - stalls.begin).tolist()}
    whole, half = said(), panel.view.cells.end / 2
    past = stalls.where(stalls.end <= half)
    passed = Counter(length_words(length) for length in (past.end - past.begin).tolist())
    panel.scope.seek(half + panel.history.origin)
    panel.scope.catch_up()
    assert said() == whole & passed
    assert 0 < said().total() < whole.total()
    assert [word for word in painted_words(panel.view) if word.text in lengths and not word.contrast] == []


def test_the_threshold_is_remembered_and_what_is_in_sight_stays(runs: dict[str, Trace], opened: Open) -> None:
    panel = opened(runs["chunked"])
    panel.view.set_range(0.05, 0.2)
    panel.set_threshold(0.02)
    panel.scope.catch_up()
    assert panel.view.range() == (0.05, 0.2)
    again = opened(runs["chunked"])
    assert again.marks.threshold == 0.02
    assert again.thresholds[0.02].isChecked()
    assert "over 20.0 ms" in again.summary.accessibleName() or not len(again.marks.stalls())
    again.set_threshold(None)
    assert storage.settings().value("timeline/stall_ms") == ""


# -- tracks -----------------------------------------------------------------------------------------------------------


def fed(trace: Trace) -> tuple[TimelineSteps, list[Step]]:
    steps, cells = TimelineSteps(), TimelineCells()
    for record in steps_of(trace):
        cells.feed([record])
        steps.feed(record, float(cells.step_begins[-1]), float(cells.step_ends[-1]), 0.0)
    return steps, steps_of(trace)


def tokens_of(step: Step) -> dict[str, int]:
    """By kind, row by row."""
    result = dict.fromkeys(TOKENS, 0)
    for row in range(step.rows):
        count, wasted, kind = int(step.count[row]), int(step.wasted[row]), step.kind[row]
        result["padding"] += int(step.padding[row]) if len(step.padding) else 0
        result["wasted"] += count if kind == Kind.HELD else wasted
        if kind != Kind.HELD:
            result["prefill" if kind == Kind.PREFILL else "decode"] += count - wasted
    return result


@pytest.mark.parametrize("name", ["preempting", "static", "chunked"])
def test_the_tracks_add_up_to_the_records(runs: dict[str, Trace], name: str) -> None:
    steps, records = fed(runs[name])
    for place, record in enumerate(records):
        row = steps.row(place)
        assert row.tokens == tokens_of(record)
        assert row.computed == int(record.count.sum() + record.padding.sum())
        assert row.seconds == pytest.approx({name: record.seconds.get(name, 0.0) for name in PHASES})
        assert row.attention == pytest.approx(record.attention)
    # one column a step, on the axis of steps
    columns = steps.tokens(np.arange(len(records) + 1.0), Axis.STEPS)
    expected = np.array([[tokens_of(record)[name] for record in records] for name in TOKENS])
    np.testing.assert_allclose(columns.mean, expected, atol=1e-9)
    # few columns: the mean over the time that was computed, and the most in any step
    edges = np.linspace(0.0, records[-1].ended, 8)
    columns = steps.tokens(edges, Axis.TIME)
    begins, ends = steps.begin, steps.end
    for x, (low, high) in enumerate(pairwise(edges.tolist())):
        over = np.clip(np.minimum(ends, high) - np.maximum(begins, low), 0.0, None)
        assert columns.busy[x] == (over.sum() > 0)
        if over.sum() > 0:
            np.testing.assert_allclose(columns.mean[:, x], (expected * over).sum(axis=1) / over.sum())
            inside = [expected[:, i].sum() for i in np.flatnonzero((begins >= low) & (begins < high))]
            assert columns.most[x] >= max(inside, default=0)


@pytest.mark.parametrize("name", ["static", "chunked"])
def test_phases_lie_where_they_ran(runs: dict[str, Trace], name: str) -> None:
    """`chunked` was launched one step ahead, so that steps overlap."""
    steps, records = fed(runs[name])
    spans: dict[str, list[tuple[float, float]]] = {phase: [] for phase in PHASES}
    for record in records:
        seconds, at = record.seconds, record.started
        for phase in LAUNCH:
            spans[phase].append((at, at + seconds.get(phase, 0.0)))
            at = spans[phase][-1][1]
        wait, commit = seconds.get("wait", 0.0), seconds.get("commit", 0.0)
        spans["commit"].append((record.ended - commit, record.ended))
        spans["wait"].append((record.ended - commit - wait, record.ended - commit))
        spans["record"].append((record.ended, record.ended + seconds.get("record", 0.0)))
    edges = np.linspace(records[3].started, records[-3].ended, 301)
    phases = steps.phases(edges)
    for phase, own in spans.items():
        expected = [
            sum(max(0.0, min(end, high) - max(begin, low)) for begin, end in own) for low, high in pairwise(edges)
        ]  # fmt: skip
        np.testing.assert_allclose(np.diff(phases[phase]), expected, atol=2e-6, err_msg=phase)
    begin, end = records[0].started, records[-1].ended
    busy = sum(stop - start for phase in ("forward", "sample") for start, stop in spans[phase])
    assert steps.busy(begin, end, False) == pytest.approx(busy, abs=1e-6 * (end - begin))
    found = steps.segments(0, len(records))
    np.testing.assert_allclose(
        sorted(zip(found.begin.tolist(), found.end.tolist())),
        sorted((b, e) for own in spans.values() for b, e in own if e > b), atol=1e-9,
    )  # fmt: skip


def test_a_device_is_busy_at_most_from_its_launch_until_its_tokens_are_read(runs: dict[str, Trace]) -> None:
    steps, records = fed(runs["chunked"])
    intervals = [
        (r.started + r.seconds.get("plan", 0.0) + r.seconds.get("prepare", 0.0), r.ended - r.seconds.get("commit", 0.0))
        for r in records
        if r.rows
    ]
    begin, end = records[0].started, records[-1].ended
    busy, last = 0.0, begin
    for low, high in intervals:
        busy += max(0.0, high - max(low, last))
        last = max(last, high)
    assert steps.busy(begin, end, True) == pytest.approx(busy, abs=1e-4 * (end - begin))


def test_a_stack_is_as_high_as_its_layers_and_idle_above() -> None:
    which = stacked(np.array([[2.0, 0.0], [3.0, 1.0]]), 6)
    assert which[:, 0].tolist() == [2, 1, 1, 1, 0, 0]
    assert which[:, 1].tolist() == [2, 2, 2, 2, 2, 1]
    shares = np.zeros((8, 3))
    shares[0], shares[1], shares[2] = (0.2, 0.0, 0.1), (0.5, 0.1, 0.0), (0.1, 0.2, 0.6)
    sharp = crisp(shares)
    assert sharp.sum(axis=0).tolist() == pytest.approx([1.0, 0.0, 1.0])
    assert sharp[:2, 0].tolist() == pytest.approx([0.2 / 0.7, 0.5 / 0.7])


def test_the_budget_has_a_line_only_where_it_means_something(runs: dict[str, Trace], opened: Open) -> None:
    assert opened(runs["chunked"]).view.budget == 64
    assert opened(runs["static"]).view.budget is None
    assert token_scale(60, 64).top == pytest.approx(1.06 * 64)
    far = token_scale(16, 2048)
    assert far.beyond
    assert far.top == 20
    assert token_scale(90, None).budget == 0


# -- axes -------------------------------------------------------------------------------------------------------------


def test_moments_and_steps_lead_to_each_other() -> None:
    begins, ends = np.array([1.0, 2.0, 4.0]), np.array([2.0, 3.0, 5.0])
    assert places_of(begins, ends, [0.0, 1.0, 1.5, 2.0, 3.5, 4.25, 9.0]).tolist() == [0, 0, 0.5, 1, 2, 2.25, 3]
    assert times_of(begins, ends, [0.0, 0.5, 1.0, 2.0, 2.25, 3.0]).tolist() == [1.0, 1.5, 2.0, 4.0, 4.25, 5.0]


@pytest.mark.parametrize("mode", MODES)
def test_on_the_axis_of_steps_each_step_has_the_same_width(mode: str) -> None:
    cells = TimelineCells()
    records = [r for r in lane_trace(mode, slots=4, requests=9, lag=1) if isinstance(r, Step)]
    cells.feed(records)
    wide = 4
    seen = raster(cells, 0, len(records), len(records) * wide, cells.slots, axis=Axis.STEPS)
    shade = np.where(seen.owner >= 0, cells.shade[seen.owner].astype(int), -1)
    for place, record in enumerate(records):
        for slot in range(cells.slots):
            rows = np.flatnonzero(record.slot == slot)
            drawn = set(shade[slot, place * wide : (place + 1) * wide].tolist())
            if not len(rows):
                assert drawn <= {-1, Shade.LINE}
            elif not record.padding[rows[0]]:
                assert len(drawn) == 1
                owner = seen.owner[slot, place * wide]
                assert cells.request[owner] == record.request[rows[0]]
    half = raster(
        cells, 0, len(records), len(records) * wide, cells.slots, axis=Axis.STEPS, until=float(cells.step_ends[9])
    )  # fmt: skip
    assert (half.owner[:, 10 * wide :] == -1).all()
    assert (half.owner[:, : 10 * wide] == seen.owner[:, : 10 * wide]).all()


def test_only_runs_in_sight_are_looked_at() -> None:
    cells = TimelineCells()
    cells.feed(lane_trace("continuous", slots=8, requests=120))
    begin, end = 0.7 * cells.end, 0.71 * cells.end
    near = cells.near(begin, end)
    seen = np.flatnonzero((cells.ends > begin) & (cells.begins < end))
    found = np.arange(len(cells))[near]
    assert set(seen.tolist()) <= set(found.tolist())
    assert len(found) < len(cells) / 2
    assert cells.at(0.7 * cells.end, 0) is not None


def test_switching_the_axis_keeps_what_is_in_sight(runs: dict[str, Trace], opened: Open) -> None:
    panel = opened(runs["static"])
    view = panel.view
    ends = view.cells.step_ends
    view.set_range(float(ends[10]), float(ends[40]))
    panel.set_axis(Axis.STEPS)
    assert view.range() == pytest.approx((11, 41), abs=1.01)
    assert storage.settings().value("timeline/axis") == "steps"
    panel.set_axis(Axis.TIME)
    assert view.range() == pytest.approx((float(ends[10]), float(ends[40])), abs=0.02)
    assert opened(runs["static"]).view.axis is Axis.TIME


# -- the cursor -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", list(Axis))
@pytest.mark.parametrize("part", ["slots", "tokens", "lane"])
def test_a_click_goes_to_its_step_and_on_a_bar_to_its_request(
    runs: dict[str, Trace], opened: Open, qtbot: QtBot, axis: Axis, part: str
) -> None:
    trace = runs["static"]
    panel = opened(trace)
    panel.set_axis(axis)
    view, records = panel.view, steps_of(trace)
    place = 12
    begin, end = view.cells.step_begins[place], view.cells.step_ends[place]
    bands, area = view.bands(), view.area()
    row = next(i for i in range(records[place].rows) if records[place].kind[i] != Kind.HELD)
    slot = int(records[place].slot[row])
    y = {
        "slots": area.top() + (slot + 0.5) * area.height() / view.slots,
        "tokens": bands.tokens.top + bands.tokens.height / 2,
        "lane": bands.lanes[0].top + 3,
    }[part]
    view.set_range(view.value_of(float(begin)) - 0.5, view.value_of(float(end)) + 0.5)
    if axis is Axis.TIME:
        view.set_range(float(begin) - 0.01, float(end) + 0.01)
    at = QPoint(round(view.x_at(float(begin + end) / 2)), round(y))
    qtbot.mouseClick(view, Qt.MouseButton.LeftButton, pos=at)
    assert panel.scope.moment == records[place].ended
    assert panel.scope.place == place
    assert panel.scope.request == (int(records[place].request[row]) if part == "slots" else -1)
    panel.scope.catch_up()
    assert f"step {records[place].step:,}" in view.accessibleDescription()
    assert view.x_at(view._cursor) == pytest.approx(view.x_at(float(end)))


def test_what_comes_after_the_cursor_is_pale_and_can_be_gone_to(runs: dict[str, Trace], opened: Open) -> None:
    panel = opened(runs["static"])
    panel.set_threshold(1.0)  # a stall has words only before the cursor
    panel.scope.catch_up()
    whole = picture(panel.view)
    half = panel.view.cells.end / 2
    panel.scope.seek(half + panel.history.origin)
    panel.scope.catch_up()
    image, x, area = picture(panel.view), round(panel.view.x_at(half)), panel.view.area()
    assert image.copy(0, 0, x, area.bottom()) == whole.copy(0, 0, x, area.bottom())
    assert image.pixelColor(x, area.center().y()) == theme.current().accent
    ground = theme.current().panel
    for at in range(x + 3, area.right(), 7):
        before, after = whole.pixelColor(at, area.center().y()), image.pixelColor(at, area.center().y())
        expected = [0.4 * c + 0.6 * g for c, g in zip(before.getRgb()[:3], ground.getRgb()[:3])]
        assert after.getRgb()[:3] == pytest.approx(expected, abs=3)


def test_a_cursor_that_leaves_the_sight_takes_it_along(runs: dict[str, Trace], opened: Open) -> None:
    panel = opened(runs["static"])
    view = panel.view
    view.set_range(0.0, 0.1)
    late = 0.9 * view.cells.end
    panel.scope.seek(late + panel.history.origin)
    panel.scope.catch_up()
    begin, end = view.range()
    assert begin < late < end
    assert end - begin == pytest.approx(0.1)
    view.set_range(0.0, 0.1)
    panel.scope.select(1)
    panel.scope.catch_up()
    assert view.range() == (0.0, 0.1)


def test_keys_of_the_page_pass_through(runs: dict[str, Trace], opened: Open, qtbot: QtBot) -> None:
    panel = opened(runs["static"])
    passed: list[int] = []
    panel.keyPressEvent = lambda event: passed.append(event.key())  # type: ignore[method-assign]
    keys = [Qt.Key.Key_F, Qt.Key.Key_Space, Qt.Key.Key_Comma, Qt.Key.Key_Period]
    for key in [*keys, Qt.Key.Key_W, Qt.Key.Key_0]:
        qtbot.keyClick(panel.view, key)
    assert passed == keys
    assert "0, Home: what is selected" in panel.view.accessibleDescription()


# -- live -------------------------------------------------------------------------------------------------------------


def test_a_live_run_is_followed_until_it_is_dragged_away(engine: Engine, opened: Open, qtbot: QtBot) -> None:
    trace = Trace()
    source = engine.run(load_workload("burst", count=4)).result()
    panel = opened(trace)
    view = panel.view
    assert picture(view).size() == view.size()
    records = list(source.records)
    half = len(records) // 2
    trace.extend(records[:half])
    panel.scope.catch_up()
    assert view.follows
    assert not panel.live.isVisible()
    extent, (begin, end) = view.extent, view.range()
    assert (begin, 10.0 % end) == (0.0, 0.0), "a half, a quarter ... of ten seconds"
    assert extent <= end < max(2 * extent, 0.7), "a short run has most of the width"
    for _ in range(40):
        qtbot.keyClick(view, Qt.Key.Key_W)  # zooming keeps the newest in sight
    begin, end = view.range()
    assert view.follows
    assert 0 < end - begin < 0.1
    assert view.cells.end <= end < view.cells.end + (end - begin) / LEAPS, "it moves on by leaps"
    trace.extend(records[half : half + 40])
    panel.scope.catch_up()
    assert view.cells.end <= view.range()[1] < view.cells.end + (end - begin) / LEAPS
    assert view.range()[1] > end
    view.pan_by(-0.5)
    panel.scope.catch_up()
    kept = view.range()
    assert not view.follows
    assert panel.scope.following
    assert panel.live.isVisible()
    trace.extend(records[half + 40 :])
    panel.scope.catch_up()
    assert view.range() == kept
    qtbot.mouseClick(panel.live, Qt.MouseButton.LeftButton)
    panel.scope.catch_up()
    assert view.follows
    assert not panel.live.isVisible()
    place, (begin, end) = len(panel.steps) - 3, view.range()
    view.zoom_by(4 * (view.cells.end - float(view.cells.step_begins[place])) / (end - begin))  # however long steps are
    panel.scope.catch_up()
    x = round(view.x_at(float(view.cells.step_begins[place] + view.cells.step_ends[place]) / 2))
    shown = view.range()
    qtbot.mouseClick(view, Qt.MouseButton.LeftButton, pos=QPoint(x, view.bands().lanes[0].top + 2))
    panel.scope.catch_up()
    assert panel.scope.place == place
    assert view.range() == shown
    panel.scope.follow()  # as the page does for F
    panel.scope.catch_up()
    assert view.follows


def test_a_short_run_that_is_over_fills_the_width_until_another_begins(opened: Open, runs: dict[str, Trace]) -> None:
    source, trace = runs["static"], Trace()
    panel = opened(trace)
    trace.extend(list(source.records))
    panel.scope.catch_up()
    view = panel.view
    for axis in (Axis.TIME, Axis.STEPS):
        panel.set_axis(axis)
        assert view.follows
        assert (0, nice_end(view.extent)) == view.range()
    panel.set_axis(Axis.TIME)
    before = view.extent
    assert before < 10
    trace.extend([Submitted(99, before + panel.history.origin, "another", [1], SamplingParams(max_tokens=4))])
    panel.scope.catch_up()
    assert before <= view.range()[1] < max(2 * before, 0.7), "in leaps, as it runs"
    view.zoom_by(0.5)
    chosen = view.range()
    trace.extend([Submitted(100, before + panel.history.origin, "a third", [1], SamplingParams(max_tokens=4))])
    panel.scope.catch_up()
    assert view.range() == chosen, "what a person chose stays"


def test_a_running_engine_is_drawn_frame_by_frame(engine: Engine, opened: Open, qtbot: QtBot) -> None:
    run = engine.run(load_workload("burst", count=4))
    panel = opened(run.trace)
    qtbot.waitUntil(lambda: len(panel.steps) > 5, timeout=20_000)
    picture(panel.view)
    trace = run.result()
    qtbot.waitUntil(lambda: len(panel.steps) == len(steps_of(trace)), timeout=20_000)
    assert panel.steps.step.tolist() == [step.step for step in steps_of(trace)]
    assert panel.view.cells.steps == len(steps_of(trace))
    assert not panel.view.cells._kept


def test_a_saved_run_looks_like_the_one_that_was_saved(runs: dict[str, Trace], opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "run.batchscope"
    save_trace(runs["preempting"], path)
    saved, live = opened(load_trace(path)), opened(runs["preempting"])
    assert picture(saved.view) == picture(live.view)
    assert saved.facts() == live.facts()
    assert len(picture(saved.view).convertToFormat(QImage.Format.Format_Indexed8).colorTable()) > 20


# -- words and the table ----------------------------------------------------------------------------------------------


def test_the_table_tells_each_step_in_sight(runs: dict[str, Trace], opened: Open) -> None:
    trace = runs["preempting"]
    panel = opened(trace)
    facts, records = panel.facts(), steps_of(trace)
    column = {name: i for i, name in enumerate(facts.columns)}
    assert [row[column["step"]] for row in facts.rows] == [record.step for record in records]
    for row, record in zip(facts.rows, records):
        assert row[column["rows"]] == record.rows
        assert row[column["prefill tokens"]] == tokens_of(record)["prefill"]
        assert row[column["wasted"]] == tokens_of(record)["wasted"]
        assert row[column["forward ms"]] == pytest.approx(1e3 * record.seconds.get("forward", 0.0))
    words = [row[column["marks"]] for row in facts.rows]
    assert sum(word.count("preempted") for word in words) == sum(len(record.preempted) for record in records)
    assert all(
        f"preempted {request}" in word
        for word, record in zip(words, records) for request in record.preempted.tolist()
    )  # fmt: skip
    assert sum(word.count("first token") for word in words) == len(told(panel, Mark.FIRST_TOKEN))
    assert sum(row[column["stalls"]] for row in facts.rows) == len(panel.marks.stalls())
    panel.show_table(True)
    panel.table.row_chosen.emit(7)
    assert panel.scope.place == 7
    panel.show_table(False)
    panel.view.set_range(0.1, 0.2)
    assert 0 < len(panel.facts().rows) < len(records)


def test_a_long_sight_says_that_its_table_is_cut(
    runs: dict[str, Trace], opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.inside.timeline.panel.MOST_ROWS", 20)
    panel = opened(runs["static"])
    facts = panel.facts()
    assert len(facts.rows) == 21
    assert facts.rows[-1][0] == f"20 of {len(panel.steps):,} steps in sight; zoom in for the others"
    panel.row_chosen(20)
    assert panel.scope.following


def test_the_words_tell_the_step_at_the_cursor_and_idle_time(runs: dict[str, Trace], opened: Open) -> None:
    trace = runs["chunked"]
    panel = opened(trace)
    record = next(r for r in steps_of(trace) if {0, 1} <= set(r.kind.tolist()))
    panel.scope.seek(record.ended)
    panel.scope.catch_up()
    decode, prefill = (int((record.kind == kind).sum()) for kind in (Kind.DECODE, Kind.PREFILL))
    computed = int(record.count[record.kind == Kind.PREFILL].sum())
    words, *shorter = panel.view._words_at_foot
    assert shorter == sorted(shorter, key=len, reverse=True), "where it is narrow, phases go and not letters"
    assert all(words.startswith(each.removesuffix(" …")) for each in shorter)
    assert words.startswith(f"step {record.step:,} · {decode} decode + {prefill} prefill of {computed}")
    assert f"forward {1e3 * record.seconds['forward']:.1f}" in words
    assert "% of the time nothing was computed" in panel.summary.accessibleName()


def test_tooltips_tell_what_is_under_the_pointer(runs: dict[str, Trace], opened: Open) -> None:
    trace = runs["shared"]
    panel = opened(trace)
    view, bands = panel.view, panel.view.bands()
    hit = told(panel, Mark.PREFIX_HIT)[0]
    x = view.x_at(hit[0] - panel.history.origin)
    y = view.area().top() + (hit[1] + 0.5) * view.area().height() / view.slots
    assert f"request {hit[2]}: prefix hit, " in view.tip(QPointF(x, y))
    assert "submitted" in view.tip(QPointF(view.x_at(0.0) + 1, bands.queue.top + 3))
    place = 5
    middle = view.x_at(float(view.cells.step_begins[place] + view.cells.step_ends[place]) / 2)
    assert view.tip(QPointF(middle, bands.tokens.top + 5)).startswith(f"step {place:,} · ")
    seconds = steps_of(trace)[place].seconds
    before = sum(seconds.get(name, 0.0) for name in LAUNCH[: LAUNCH.index("forward")])
    computing = view.x_at(float(view.cells.step_begins[place]) + before + seconds["forward"] / 2)
    assert view.tip(QPointF(computing, bands.lanes[0].top + 3)).startswith("forward, ")


@pytest.mark.parametrize(("width", "height"), [(300, 140), (1000, 240), (1000, 500), (1600, 90)])
@pytest.mark.parametrize(("name", "zoom"), [("dark", 1.0), ("light", 2.0)])
def test_every_size_has_its_parts_inside(
    runs: dict[str, Trace], opened: Open, width: int, height: int, name: str, zoom: float
) -> None:
    theme.set_theme(name)
    theme.set_zoom(zoom)
    panel = opened(runs["preempting"], int(width * zoom), int(height * zoom))  # type: ignore[call-arg]
    view = panel.view
    bands, area = view.bands(), view.area()
    below = [band for band in (bands.tokens, *bands.lanes, bands.ticks, bands.legend, bands.words) if band.height]
    y = area.bottom()
    for band in below:
        assert band.top >= y
        y = band.bottom
    assert y <= view.height()
    assert (bands.tokens.height > 0) == (view.height() >= 130 * zoom)
    image = picture(view)
    ground = theme.current().panel
    rim = [image.pixelColor(image.width() - 1, y) for y in range(image.height())]
    assert all(color == ground or contrast(color, ground) < 1.5 for color in rim)
    rows = range(area.top(), area.bottom(), 2)
    assert len({image.pixelColor(x, y).name() for x in range(area.left(), area.right(), 3) for y in rows}) > 3


def test_another_trace_begins_anew(runs: dict[str, Trace], opened: Open) -> None:
    panel = opened(runs["static"])
    panel.scope.show(runs["chunked"])
    panel.scope.catch_up()
    assert len(panel.steps) == len(steps_of(runs["chunked"]))
    panel.scope.show(Trace())
    panel.scope.catch_up()
    assert panel.view.accessibleDescription() == panel.view.empty_text
    assert not panel.facts().rows
    picture(panel.view)


def test_a_tooltip_tells_of_a_replayed_graph_and_its_dummies(opened: Open) -> None:
    panel = opened(Trace(on_gpu(synthetic_trace(streams=12, tokens_per_second=2000, seconds=0.3))))
    view, bands = panel.view, panel.view.bands()
    place = next(i for i in range(len(panel.steps)) if panel.steps.row(i).graph)
    row = panel.steps.row(place)
    x = view.x_at(float(view.cells.step_begins[place] + view.cells.step_ends[place]) / 2)
    words = f"replayed a graph of 16 rows ({16 - row.rows} dummies)"
    for band in (bands.tokens, *bands.lanes):
        assert words in view.tip(QPointF(x, band.top + 3))
    assert f"{length_words(row.measured)} by the GPU's own clock" in view.tip(QPointF(x, bands.lanes[1].top + 3))


def test_the_devices_lane_is_as_long_as_its_own_clock_says(opened: Open) -> None:
    panel = opened(Trace(on_gpu(synthetic_trace(streams=12, tokens_per_second=2000, seconds=0.3))))
    steps = panel.steps
    whole = np.array((0.0, float(steps.row(len(steps) - 1).ended) + 1))
    busy = float(np.diff(steps.device(whole))[0])
    assert busy == pytest.approx(sum(steps.row(i).measured for i in range(len(steps))))
    assert steps.clocked
    assert not panel.summary.accessibleName().startswith("at least ")


def test_lanes_of_a_device_are_two(runs: dict[str, Trace], opened: Open) -> None:
    records = list(runs["chunked"].records)
    header = runs["chunked"].header
    records[0] = replace(header, model=replace(header.model, device="cuda:0"))
    trace = Trace(records)
    trace.complete = True
    panel = opened(trace)
    view = panel.view
    assert len(view.bands().lanes) == 2
    assert panel.summary.accessibleName().startswith("at least ")
    x = view.x_at(float(view.cells.step_begins[9] + view.cells.step_ends[9]) / 2)
    assert "no longer than" in view.tip(QPointF(x, view.bands().lanes[1].top + 3))
    replayed = "replayed a graph" in view.tip(QPointF(x, view.bands().lanes[1].top + 3))
    assert replayed == bool(panel.steps.row(9).graph)
    times = np.linspace(0.0, view.cells.end, 50)
    assert (np.diff(panel.steps.device(times)) <= np.diff(times) + 1e-9).all()
    spans = np.stack((times[:-1], times[1:]), axis=1)
    shares = host_shares(panel.steps.phases(spans), spans)
    assert (shares.sum(axis=0) <= 1.01).all()


def test_drawing_costs_no_more_for_a_longer_trace(opened: Open) -> None:
    """What is in sight is the same; the trace is eight times as long."""
    seconds = []
    for requests in (100, 800):
        trace = Trace(lane_trace("continuous", slots=32, requests=requests))
        trace.complete = True
        panel = opened(trace)
        view, best = panel.view, 9.0
        for _ in range(5):
            view.set_range(1.0, 3.0 + 1e-6 * _)
            begun = time.thread_time()
            view.repaint()
            best = min(best, time.thread_time() - begun)
        seconds.append(best)
    assert seconds[1] < 3 * seconds[0] + 0.01
