"""Idle time folded on the timeline's axis of seconds, in a real run of two sends with time between them."""

import time

import numpy as np
import pytest
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from app.inside.memory.panel import MemoryBill
from app.inside.timeline.axis import Axis
from app.inside.timeline.panel import TimelinePanel
from app.inside.timeline.picture import paint
from app.plot.folds import WIDTH, Folds
from app.plot.inked import plate_of
from app.plot.scales import nice_end
from app.ui.look.font_face import FontFace
from engine import Engine, EngineConfig, SamplingParams, Trace
from engine.trace import Ended, Step, Submitted

IDLE = 1.6  # seconds between the sends
HALF = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


@pytest.fixture(scope="module")
def trace(engine: Engine) -> Trace:
    found = engine.begin(EngineConfig(max_running=4))
    for wait in (IDLE, 0.0):
        for stream in [engine.submit(f"Once upon a time {i}", HALF) for i in range(2)]:
            stream.result()
        time.sleep(wait)
    found.complete = True
    return found


@pytest.fixture
def panel(panel: TimelinePanel) -> TimelinePanel:
    panel.axes[Axis.TIME].click()
    return panel


def test_a_fold_is_narrow_and_every_other_second_keeps_its_width() -> None:
    folds = Folds(np.array([1.0, 20.0]), np.array([11.0, 25.0]))
    times = np.array([-1.0, 0.5, 1.0, 6.0, 11.0, 12.0, 20.0, 25.0, 30.0])
    first, second = 2 + WIDTH, 10 + 2 * WIDTH
    wanted = [-1.0, 0.5, 1.0, 1 + WIDTH / 2, 1 + WIDTH, first, second - WIDTH, second, second + 5]
    assert folds.values(times).tolist() == pytest.approx(wanted)
    assert folds.times(folds.values(times)).tolist() == pytest.approx(times.tolist())
    assert folds.parts(0.5, second + 1) == [pytest.approx(part) for part in ((0.5, 1.0), (11.0, 20.0), (25.0, 26.0))]


def test_idle_time_between_two_sends_is_folded_and_said(panel: TimelinePanel, trace: Trace) -> None:
    view, gap = panel.view, panel.history.presence.gaps(1.0)
    begin, end = (float(times[0]) - panel.history.origin for times in gap)
    assert IDLE <= end - begin < IDLE + 2
    computed = trace.duration - (end - begin)
    assert view.extent == pytest.approx(computed + WIDTH, abs=0.01), "the axis ends where the work does"
    (broken,) = view._breaks()
    middle = QPointF((broken.left + broken.right) / 2, view.area().center().y())
    assert "s idle" in view.tip(middle)
    assert "no request was waiting or running" in view.tip(middle)
    assert view.x_at(begin) <= (broken.left + broken.right) / 2 <= view.x_at(end)


def test_bars_and_tokens_are_where_the_folded_axis_has_their_steps(panel: TimelinePanel) -> None:
    view = panel.view
    view.grab()
    image = view._pixels
    assert image is not None
    busy = ~np.isin(image, (view._paint._empty, view._paint._rule)).all(axis=0)
    drawn = np.flatnonzero(busy) / view._ratio() + view.area().left()
    begins, ends = view.cells.step_begins, view.cells.step_ends
    assert drawn[0] == pytest.approx(view.x_at(float(begins[0])), abs=2)
    assert drawn[-1] == pytest.approx(view.x_at(float(ends[-1])), abs=2)
    tokens = view.steps.tokens(np.linspace(*view.range(), 501), Axis.TIME, view.folds)
    last = np.flatnonzero(tokens.busy)[-1] / 500 * view.area().width() + view.area().left()
    assert last == pytest.approx(view.x_at(float(ends[-1])), abs=5)


def test_idle_time_is_not_time_in_which_nothing_was_computed(panel: TimelinePanel, trace: Trace) -> None:
    view = panel.view
    submits = [record.time for record in trace.records if isinstance(record, Submitted)]
    steps = [record for record in trace.records if isinstance(record, Step)]
    ends = sorted(record.time for record in trace.records if isinstance(record, Ended))
    half = next(i for i, step in enumerate(steps) if step.started >= submits[2])
    spans = (submits[0], max(ends[1], steps[half - 1].ended)), (submits[2], max(ends[3], steps[-1].ended))
    busy = sum(step.seconds["forward"] + step.seconds["sample"] for step in steps)
    share = 100 * (1 - busy / sum(end - begin for begin, end in spans))
    view.see_all()
    panel.draw()
    said = panel.summary.accessibleName()
    told = float(said.split(" %")[0].split()[-1])
    assert told == pytest.approx(share, abs=4), said


@pytest.mark.parametrize("right", [0.04, 0.12, 1.0])
def test_no_break_of_the_axis_runs_through_the_budgets_name(
    panel: TimelinePanel, monkeypatch: pytest.MonkeyPatch, right: float
) -> None:
    said: list[tuple[str, QRectF]] = []

    def noted(painter: QPainter, face: FontFace, x: float, baseline: float, words: str) -> None:
        said.append((words, plate_of(face, x, baseline, words)))

    monkeypatch.setattr(paint, "say_on_plate", noted)
    view = panel.view
    begin = float(view.folds.places[0])
    view.set_range(0.0, begin + WIDTH + right * begin)
    view.grab()
    ((words, plate),) = [each for each in said if "budget" in each[0]]
    (broken,) = view._breaks()
    assert plate.right() <= broken.left or broken.right <= plate.left(), words
    assert view.area().left() <= plate.left()


def test_memory_folds_the_same_idle_time(panel: TimelinePanel, open_panel, trace: Trace) -> None:
    bill = open_panel(MemoryBill, trace, 500, 330)
    area, view = bill.area, panel.view
    ((fold,), (same,)) = area.breaks(), view._breaks()
    assert (fold.begin, fold.end) == (same.begin, same.end)
    assert area.span[1] == pytest.approx(nice_end(float(view.extent)), rel=0.1)
    places = area.area().left() + np.array([0.0, 0.3, 0.6, 0.9]) * area.area().width()
    assert [area.x_at(area.time_at(x)) for x in places] == pytest.approx(places.tolist())
    steps = [record for record in trace.records if isinstance(record, Step)]
    for step in steps[2], steps[-2]:
        column = int(np.searchsorted(area._edges, area.value_of((step.started + step.ended) / 2))) - 1
        assert area._means["used"][column] > 0, "both sends are where the axis has them"
    idle = (area._edges[:-1] > fold.begin) & (area._edges[1:] < fold.begin + WIDTH)
    assert not area._means["used"][idle].any()


def test_lanes_on_one_clock_and_the_axis_of_steps_fold_nothing(panel: TimelinePanel, trace: Trace) -> None:
    view = panel.view
    panel.axes[Axis.STEPS].click()
    assert not view._breaks()
    panel.axes[Axis.TIME].click()
    view.shared = True
    assert not view._breaks()
    assert view.extent == pytest.approx(trace.duration, abs=0.01)
