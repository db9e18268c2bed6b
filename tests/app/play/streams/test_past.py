"""Streams, table and charts at moments in the past, against what the records up to then say."""

import random
from collections.abc import Callable

import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from app.bench.synthetic import synthetic_trace
from app.play.streams.density import Density
from app.playback.bridge import Bridge
from engine import Trace, load_trace, save_trace
from engine.trace import Ended, FinishReason, Record, RequestIndex, RequestView, State, Step, Submitted, TallyIndex
from tests.app.play.streams.card_places import card_rect

LEFT = Qt.MouseButton.LeftButton
WORDS = {
    **dict.fromkeys((State.WAITING, State.PREEMPTED), "waiting"),
    **dict.fromkeys((State.PREFILL, State.DECODE), "running"),
    **dict.fromkeys((FinishReason.STOP, FinishReason.LENGTH), "done"),
    FinishReason.CANCELLED: "cancelled",
    FinishReason.ERROR: "failed",
}


def told_at(record: Record) -> float:
    match record:
        case Step():
            return record.ended
        case Submitted() | Ended():
            return record.time
        case _:
            return 0.0


def fed_until(trace: Trace, moment: float) -> dict[int, RequestView]:
    index = RequestIndex()
    for record in trace.records:
        if told_at(record) <= moment:
            index.feed(record)
    return index.requests


def told(view: RequestView) -> tuple[object, ...]:
    return (
        view.request, view.state, view.reason, view.error, view.computed, view.slot, list(view.tokens), view.text,
        view.ttft, view.tokens_per_second, view.preemptions, view.ended, [sample.text for sample in view.samples],
    )  # fmt: skip


Show = Callable[[Trace], Trace]


@pytest.fixture
def show(qtbot: QtBot, bridge: Bridge) -> Show:
    def shown(trace: Trace) -> Trace:
        bridge.show(trace)
        qtbot.waitUntil(lambda: bridge.behind == 0)
        bridge.scope.catch_up()
        return trace

    return shown


def busy() -> Trace:
    """Made up, with preemptions, errors and cancellations, and requests that come in all along."""
    return Trace(synthetic_trace(streams=12, tokens_per_second=900, seconds=3, faults=0.1, seed=4))


def moments(trace: Trace, count: int) -> list[float]:
    rng = random.Random(7)
    times = [told_at(record) for record in trace.records]
    return [*(rng.uniform(0, max(times)) for _ in range(count)), *rng.sample(times, count), -1.0]


@pytest.mark.parametrize("source", ["made up", "real", "saved"])
def test_streams_stand_as_they_stood(bridge, wall, table, show, told_runs, tmp_path, source) -> None:
    trace = busy() if source == "made up" else Trace(told_runs.sampled.records)
    if source == "saved":
        save_trace(trace, tmp_path / "run.bsrun")
        trace = load_trace(tmp_path / "run.bsrun")
    show(trace)
    states = set()
    for moment in moments(trace, 12):
        bridge.scope.seek(moment)
        table._on_refresh()
        then = fed_until(trace, moment)
        assert wall.cards.ids == list(then) == list(bridge.shown)
        assert sorted(table.model.order) == sorted(then)
        for request, expected in then.items():
            assert told(wall.cards.view(request)) == told(expected)
            assert told(table.model.row_of(request)) == told(expected)
            states.add(expected.state)
        samples = [sample for view in then.values() for sample in view.samples]
        counts = {"failed": 0, "running": 0, "waiting": 0, "done": 0, "cancelled": 0}
        for sample in samples:  # as each card says
            counts[WORDS[sample.reason or sample.state]] += 1
        said = [f"{n:,} {what}" for what, n in counts.items() if n or what in ("running", "waiting", "done")]
        assert wall.counts.accessibleName().endswith(", ".join(said))
        assert wall.counts.text().startswith("at ")
        assert not wall.cards.viewport().grab().isNull()
    assert len(states) >= 3
    bridge.scope.follow()
    table._on_refresh()
    assert wall.cards.ids == sorted(table.model.order) == list(bridge.requests)
    first = wall.cards.ids[0]
    assert told(wall.cards.view(first)) == told(bridge.requests[first])
    assert not wall.counts.text().startswith("at ")


def test_what_comes_in_does_not_disturb_the_past(bridge, tell, story, wall, table) -> None:
    tell([story.submitted(1), story.submitted(2), story.step({1: "Once"}), story.step({1: " upon", 2: "A"})])
    bridge.scope.seek(0.15)
    table._on_refresh()
    before = wall.cards.viewport().grab().toImage(), wall.counts.text()
    tell([story.step({1: " a", 2: " dog"}), story.submitted(3), story.ended(2), story.step({3: "New"})])
    table._on_refresh()
    assert (wall.cards.viewport().grab().toImage(), wall.counts.text()) == before
    assert before[1] == "at 150 ms  ·  1 running  ·  1 waiting  ·  0 done"
    assert (wall.cards.ids, table.model.order) == ([1, 2], [1, 2])
    assert wall.cards.view(1).text == "Once"
    bridge.scope.follow()
    table._on_refresh()
    assert (wall.cards.ids, table.model.order) == ([1, 2, 3], [1, 2, 3])
    assert wall.cards.view(1).text == "Once upon a"
    assert wall.counts.text() == "2 running  ·  0 waiting  ·  1 done"
    tell([story.step({1: " time"})])
    assert wall.cards.view(1).text == "Once upon a time"


def test_a_selection_outlives_a_time_before_its_request(bridge, tell, story, wall, table) -> None:
    tell([story.submitted(1), story.step({1: "Once"})])
    tell([story.submitted(2), story.step({1: " upon", 2: "A"})])
    table._on_refresh()
    wall.cards._choose(2)
    assert (bridge.scope.request, table.selected) == (2, 2)
    bridge.scope.seek(0.05)
    table._on_refresh()
    assert (bridge.scope.request, wall.cards.current, table.selected) == (2, None, None)
    bridge.scope.follow()
    table._on_refresh()
    assert (bridge.scope.request, wall.cards.current, table.selected) == (2, 2, 2)


def test_a_selection_anywhere_is_one_everywhere(qtbot, bridge, tell, story, wall, table) -> None:
    tell([story.submitted(r) for r in (1, 2, 3)])
    table._on_refresh()
    qtbot.mouseClick(wall.cards.viewport(), LEFT, pos=card_rect(wall, 2).center())
    assert (bridge.scope.request, table.selected) == (2, 2)
    rect = table.table.visualRect(table.model.index(2, 1))
    qtbot.mouseClick(table.table.viewport(), LEFT, pos=rect.center())
    assert (bridge.scope.request, wall.cards.current) == (3, 3)
    bridge.scope.select(1)
    assert (wall.cards.current, table.selected) == (1, 1)
    qtbot.mouseClick(wall.cards.viewport(), LEFT, pos=QPoint(900, 500))
    assert (bridge.scope.request, table.selected) == (-1, None)


def test_what_can_be_done_is_what_can_be_done_now(bridge, tell, story, wall) -> None:
    tell([story.submitted(1), story.step({1: "Once"}), story.step({1: " upon"}), story.ended(1, FinishReason.STOP)])
    bridge.scope.seek(0.1)
    menu = wall.cards.menu(1)
    offered = {a.text().split("\t")[0] for a in menu.actions() if a.isEnabled()}
    menu.deleteLater()
    assert "decoding" in wall.cards.accessibleDescription() or wall.cards.view(1).state.value == "decoding"
    assert "Stop this one" not in offered
    assert "Follow up" in offered


def test_the_wall_replays_from_its_beginning_and_follows(bridge, show, wall) -> None:
    show(busy())
    wall.set_density(Density.USUAL)
    bar, tops = wall.cards.verticalScrollBar(), []
    for i in range(1, 20):
        bridge.scope.show_at(bridge.scope.end * i / 20)
        tally = bridge.tally.at(bridge.scope.moment)
        assert wall.cards.viewport().rect().intersects(card_rect(wall, tally.newest))
        tops.append(bar.value())
    assert tops == sorted(tops)
    assert tops[-1] > tops[0]


def test_a_hidden_wall_catches_up_when_it_is_shown(bridge, show, wall) -> None:
    trace = show(busy())
    wall.hide()
    bridge.scope.seek(0.4)
    wall.show()
    assert wall.cards.ids == list(fed_until(trace, 0.4))


def test_samples_count_as_streams(told_runs) -> None:
    tally = TallyIndex()
    tally.feed(told_runs.sampled.records)
    now = tally.at()
    assert (now.requests, now.running, now.waiting, now.over) == (4, 0, 0, 6)


def test_charts_stand_at_the_cursor_and_keep_it_in_sight(bridge, show, charts) -> None:
    show(Trace(synthetic_trace(streams=4, tokens_per_second=40, seconds=150, faults=0)))
    now = charts.series.now
    for moment in (now - 10, 100.0, 20.0, 21.5, 3.0, 140.0):
        bridge.scope.seek(moment)
        charts.refresh()
        begin, end = charts.span()
        assert begin <= moment <= end
        assert end - begin == pytest.approx(60)
        chart = next(c for c in charts.charts if c.measure.name == "requests")
        step = bridge.scope.step
        assert chart.plot._cursor.isVisible()
        assert chart.plot._cursor.value() == moment
        # a figure is that of its quarter second
        steps = [s for s in bridge.trace.steps if int(s.ended * 4) == int(moment * 4)] or [step]
        assert chart._said[0][0] in {f"{s.running} · {s.waiting}" for s in steps}
        assert charts.span_button.text().startswith("at ")
    bridge.scope.follow()
    charts.refresh()
    assert charts.span() == (pytest.approx(now - 60), now)
    assert not chart.plot._cursor.isVisible()
    assert charts.span_button.text() == "last 60 s"


def test_charts_stand_still_in_the_past(bridge, tell, story, charts) -> None:
    tell([story.submitted(1)] + [story.step({1: "a"}, seconds=1.0) for _ in range(80)])
    bridge.scope.seek(70.0)
    before = charts.span()
    tell([story.step({1: "a"}, seconds=1.0) for _ in range(30)])
    assert charts.span() == before
    bridge.scope.follow()
    assert charts.span()[1] == pytest.approx(110.0)


def test_a_click_on_a_chart_goes_there(qtbot, bridge, show, charts) -> None:
    show(Trace(synthetic_trace(streams=4, tokens_per_second=100, seconds=30, faults=0)))
    charts.refresh()
    chart, (begin, end) = charts.charts[1], charts.span()
    x = round(chart.area().width() * 0.4)
    qtbot.mouseClick(chart, LEFT, pos=QPoint(x, 40))
    assert bridge.scope.moment == pytest.approx(begin + (end - begin) * x / chart.area().width())
    qtbot.mouseClick(chart, LEFT, pos=QPoint(round(chart.area().right()), 40))
    assert bridge.scope.following


def test_another_trace_is_followed_from_its_newest(bridge, show, wall, table, charts) -> None:
    show(busy())
    bridge.scope.seek(0.5)
    bridge.show(Trace())
    table._on_refresh()
    assert (wall.cards.ids, table.model.order, wall.counts.text()) == ([], [], "")
    assert charts.span() == (0.0, 10.0)
