"""One trace, one moment, and a turn for every panel."""

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np
import pytest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.bench.synthetic import synthetic_trace
from app.inside.panel import InsightPanel
from app.playback.cursor_bar import STEPS, CursorBar
from app.playback.scope import IDLE, Scope
from app.playback.speed import WATCHED, watchable
from app.ui.tables.facts import Facts, cell_text
from engine import Trace
from engine.trace import Record, Step
from tests.engine.trace.hand_made import two_sends


class Counter(InsightPanel):
    """Counts records; its table has one row a step it has seen."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, "counter", "Counter")
        self.records = self.drawn = 0
        self.steps: list[int] = []
        self.text = QLabel()
        self.set_picture(self.text)

    def take(self, records: Sequence[Record]) -> None:
        self.records += len(records)
        self.steps += [r.step for r in records if isinstance(r, Step)]

    def forget(self) -> None:
        self.records, self.steps = 0, []

    def draw(self) -> None:
        self.drawn += 1
        self.text.setText(str(self.scope.place))
        self.summary.say(f"{self.records} records")

    def facts(self) -> Facts:
        return Facts(("step", "half"), [(step, step / 2) for step in self.steps])


class Fragile(Counter):
    def draw(self) -> None:
        super().draw()
        raise ValueError("no such block")


@pytest.fixture
def scope(qtbot: QtBot) -> Iterator[Scope]:
    scope = Scope()
    yield scope
    scope.stop()


def a_trace(seconds: float = 2.0) -> Trace:
    return Trace(synthetic_trace(streams=4, tokens_per_second=300, seconds=seconds, faults=0))


def test_a_look_at_the_step_takes_nothing_in(scope: Scope) -> None:
    scope.show(a_trace())
    assert scope.step is None
    assert scope.steps == 0
    scope.catch_up()
    assert scope.step is not None


def test_the_step_at_a_moment_is_the_last_that_had_ended(scope: Scope) -> None:
    trace = a_trace()
    steps = trace.steps
    scope.show(trace)
    scope.catch_up()
    assert scope.steps == len(steps)
    rng = np.random.default_rng(0)
    for moment in rng.uniform(-0.1, steps[-1].ended + 0.1, 200).tolist():
        before = [i for i, step in enumerate(steps) if step.ended <= moment]
        scope.show_at(moment)
        assert scope.place == (before[-1] if before else -1)
        assert scope.step is (steps[before[-1]] if before else None)
    for i, step in enumerate(steps):
        scope.show_at(scope.origin + (step.ended - scope.origin))
        assert scope.place == i, "a moment told relative to the origin is not a step too early"


def test_a_panel_that_raises_stands_still_is_told_of_once_and_comes_back_with_another_trace(
    qtbot: QtBot, scope: Scope
) -> None:
    panels = Fragile(scope), Counter(scope)
    for panel in panels:
        qtbot.addWidget(panel)
        panel.show()
    told: list[str] = []
    for times in (1, 2):
        with qtbot.captureExceptions() as raised:
            scope.show(a_trace())
            qtbot.waitUntil(lambda: panels[1].caught_up and panels[1].drawn > 0)
            qtbot.wait(200)
        told += [note for _, error, _ in raised for note in error.__notes__]
        assert (len(raised), len(told), panels[0].drawn) == (1, times, times)
    assert told[0] == "Counter stands still."
    panels[0].close_down()


def test_stepping_goes_from_step_to_step_and_no_further_than_the_ends(scope: Scope) -> None:
    trace = a_trace()
    scope.show(trace)
    last = len(trace.steps) - 1
    scope.step_by(-1)
    assert scope.place == last - 1
    assert not scope.following
    scope.step_by(10**6)
    assert scope.place == last
    scope.step_by(-(10**6))
    assert scope.place == 0
    scope.follow()
    assert scope.moment == inf
    assert scope.now == trace.steps[-1].ended


def test_it_plays_to_the_end_and_follows_there(qtbot: QtBot, scope: Scope) -> None:
    counter = Counter(scope)
    qtbot.addWidget(counter)
    counter.show()
    trace = a_trace(1.0)
    trace.complete = True
    scope.show(trace)
    qtbot.waitUntil(lambda: counter.caught_up)
    scope.speed = 4.0
    moments: list[float] = []
    scope.moved.connect(lambda: moments.append(scope.now))
    scope.toggle()
    assert scope.playing
    assert scope.now == scope.origin, "from the start, since it was at the end"
    qtbot.waitUntil(lambda: not scope.playing)
    assert scope.following
    assert moments == sorted(moments)
    assert len(moments) > 3
    scope.toggle()
    scope.toggle()
    assert not scope.playing
    assert not scope.following
    counter.close_down()


def test_what_was_over_sooner_is_played_so_that_it_can_be_watched(qtbot: QtBot, scope: Scope) -> None:
    bar = CursorBar(scope)
    qtbot.addWidget(bar)
    bar.catch_up()
    assert bar.speed.currentText() == "auto", "there is nothing to play"
    trace = a_trace(1.0)
    trace.complete = True
    scope.show(trace)
    scope.catch_up()
    begin, end = trace.presence.span(0.0)
    assert scope.pace == watchable(end - begin) == pytest.approx((end - begin) / WATCHED)
    bar.catch_up()
    assert bar.speed.currentText() == f"auto · {scope.pace:.2g} ×"
    scope.toggle()
    qtbot.wait(200)
    scope.toggle()
    assert 0 < scope.now - scope.origin < 0.1, "slow motion"
    bar.speed.set_value(4.0)
    assert scope.pace == 4.0
    assert watchable(60.0) == 1.0, "never faster than it was"


def test_playing_passes_over_idle_time_and_of_a_session_plays_what_came_last(qtbot: QtBot, scope: Scope) -> None:
    qtbot.addWidget(CursorBar(scope))
    trace = Trace(two_sends())
    scope.show(trace)
    scope.catch_up()
    moments: list[float] = []
    scope.moved.connect(lambda: moments.append(scope.moment))
    scope.speed = 50.0
    scope.toggle()
    assert scope.moment == 63.0, "the model waits for more: the last send is played"
    scope.seek(scope.origin)
    scope.toggle()
    qtbot.waitUntil(lambda: not scope.playing)
    assert scope.following
    assert not [moment for moment in moments if 3.0 + IDLE < moment < 63.0]
    assert any(3.0 > moment > scope.origin for moment in moments)


def test_pausing_a_live_trace_holds_the_moment_while_it_grows(qtbot: QtBot, scope: Scope) -> None:
    whole = a_trace()
    half = len(whole.records) // 2
    trace = Trace(whole.records[:half])
    scope.show(trace)
    scope.catch_up()
    scope.toggle()
    at = scope.place
    trace.extend(whole.records[half:])
    scope.catch_up()
    assert scope.place == at
    assert scope.steps == len(whole.steps)
    scope.follow()
    assert scope.place == scope.steps - 1


def test_a_closed_panel_takes_nothing_and_catches_up_when_it_is_opened(qtbot: QtBot, scope: Scope) -> None:
    counter, other = Counter(scope), Counter(scope)
    for widget in (counter, other):
        qtbot.addWidget(widget)
    other.show()
    trace = a_trace()
    scope.show(trace)
    qtbot.waitUntil(lambda: other.caught_up)
    assert (counter.records, counter.drawn) == (0, 0)
    counter.show()
    qtbot.waitUntil(lambda: counter.records == len(trace.records))
    drawn = counter.drawn
    qtbot.wait(120)
    assert counter.drawn == drawn, "nothing new, nothing drawn"
    scope.step_by(-5)
    qtbot.waitUntil(lambda: counter.text.text() == str(scope.place))
    scope.show(Trace())
    assert counter.records == 0


def test_a_driver_decides_where_the_cursor_goes(scope: Scope) -> None:
    asked: list[float] = []

    class Elsewhere:
        def drive(self, moment: float) -> None:
            asked.append(moment)

    scope.driver = Elsewhere()
    scope.show(a_trace())
    scope.seek(0.5)
    scope.catch_up()
    assert asked == [0.5]
    assert scope.following
    scope.show_at(0.5)
    assert scope.now == 0.5


def test_the_table_shows_the_facts_and_the_exports_write_them(qtbot: QtBot, scope: Scope, tmp_path) -> None:
    counter = Counter(scope)
    qtbot.addWidget(counter)
    counter.resize(300, 200)
    counter.show()
    scope.show(a_trace())
    scope.catch_up()
    counter.table_action.trigger()
    assert counter.shows_table
    model = counter.table.facts_model
    assert model.rowCount() == len(counter.steps)
    assert model.data(model.index(1, 1)) == cell_text(counter.steps[1] / 2)
    said: list[str] = []
    counter.done.connect(said.append)
    counter.failed.connect(said.append)
    for ending in ("csv", "svg", "png"):
        counter.menu.save(tmp_path / f"x.{ending}")
        assert (tmp_path / f"x.{ending}").stat().st_size > 0
    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert lines[0] == "step,half"
    assert len(lines) == 1 + len(counter.steps)
    assert (tmp_path / "x.svg").read_text().lstrip().startswith("<?xml")
    counter.menu.save(tmp_path / "no" / "x.csv")
    counter.menu.save(tmp_path / "no" / "x.png")
    assert ["was saved to" in words for words in said] == [True, True, True, False, False]
    assert "No such file" in said[3]


def test_the_cursor_bar_seeks_steps_and_follows(qtbot: QtBot, scope: Scope) -> None:
    bar = CursorBar(scope)
    qtbot.addWidget(bar)
    bar.show()
    assert not bar.slider.isEnabled()
    scope.show(a_trace())
    scope.catch_up()
    qtbot.waitUntil(bar.slider.isEnabled)
    assert bar.follow.isChecked()
    bar.slider.setValue(STEPS // 2)
    assert not bar.follow.isChecked()
    middle = scope.origin + (scope.end - scope.origin) / 2
    assert scope.now == pytest.approx(middle, abs=0.01)
    place = scope.place
    bar.on.click()
    assert scope.place == place + 1
    bar.back.click()
    bar.back.click()
    assert scope.place == place - 1
    assert scope.step is not None
    assert bar.words.text().startswith(f"step {scope.step.step:,}  ·  ")
    bar.follow.click()
    assert scope.following
    bar.speed.setCurrentIndex(1)
    assert scope.speed == 0.01
