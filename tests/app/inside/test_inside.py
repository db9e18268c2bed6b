"""All panels that look inside, in the real window: the same facts from a live engine and from its saved run."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from app.bench.synthetic import synthetic_trace
from app.bench.synthetic_lanes import lane_trace
from app.compare.choice import LaneChoice, RaceChoice
from app.inside.insights import INSIGHTS
from app.inside.memory.panel import MemoryBill
from app.inside.panel import COMING, InsightPanel
from app.inside.roofline.panel import Roofline
from app.inside.step.panel import StepInspector
from app.inside.timeline.panel import TimelinePanel
from app.inside.timeline.picture import paint
from app.playback.cursor_bar import CursorBar
from app.playback.scope import Scope
from app.ui.look import theme
from app.ui.painted import Painted
from app.ui.tables.facts import Facts
from app.window.main_window import COMPARE, MainWindow
from engine import EngineConfig, SamplingParams, Submission, Trace, load_workload, save_trace
from engine.trace import Kind
from tests.engine.trace.hand_made import header, step, submitted

WAIT = 60_000


def panels(window: MainWindow) -> dict[str, InsightPanel]:
    return {name: place.build() for name, place in window.page.places.items()}


def everything_shown(window: MainWindow) -> dict[str, InsightPanel]:
    """All panels in sight, so that each takes the trace."""
    window.resize(1800, 1200)
    window.page.layout_of.everything()
    return panels(window)


def facts_at(window: MainWindow, place: int) -> dict[str, Facts]:
    scope = window.bridge.scope
    scope.catch_up()
    scope.show_at(float(scope.step_ends[place]))
    scope.catch_up()
    facts = {name: panel.facts() for name, panel in panels(window).items()}
    return {name: Facts(each.columns, list(each.rows)) for name, each in facts.items()}


def play(qtbot: QtBot, window: MainWindow, config: EngineConfig, workload: str, count: int) -> None:
    """A live run in the window: prefixes shared, blocks scarce enough that some give way."""
    window.session.start(window.session.begin(config))
    qtbot.waitUntil(lambda: window.session.config == config, timeout=WAIT)
    prompts = [
        Submission(a.prompt, a.params.with_(max_tokens=24)) for a in load_workload(workload, count=count).arrivals
    ]
    prompts.append(Submission("Tell me a story about a fox.", SamplingParams(max_tokens=20, n=3, seed=1, logprobs=3)))
    prompts.append(Submission("The sun was", SamplingParams(max_tokens=12, beam_width=3)))
    window.session.send(prompts)
    qtbot.waitUntil(
        lambda: len(window.bridge.requests) == count + 2 and not window.bridge.busy and not window.bridge.behind,
        timeout=WAIT,
    )


def test_every_panel_tells_the_same_of_a_live_run_and_of_its_file(
    qtbot: QtBot, ready: MainWindow, tmp_path: Path
) -> None:
    window = ready
    built = everything_shown(window)
    assert set(built) == {insight.name for insight in INSIGHTS}
    config = EngineConfig(max_running=6, prefix_caching=True, kv_memory=40 * 16 * window.session.card.kv_token_bytes)
    play(qtbot, window, config, "shared-system-prompt", 8)
    scope = window.bridge.scope
    qtbot.waitUntil(lambda: all(panel.caught_up for panel in built.values() if panel.isVisible()), timeout=WAIT)
    assert all(panel.isVisible() for panel in built.values()), "all are in sight"
    scope.catch_up()
    places = [0, scope.steps // 3, scope.steps // 2, scope.steps - 1]
    live = {place: facts_at(window, place) for place in places}
    run = tmp_path / "live.bsrun"
    save_trace(window.bridge.trace, run)
    window.open_path(run)
    qtbot.waitUntil(lambda: window.runs.path == run and not window.bridge.behind, timeout=WAIT)
    for place in reversed(places):
        replayed = facts_at(window, place)
        for name, facts in live[place].items():
            assert facts.rows or name in ("machine", "beams", "experts", "attention"), (
                f"{name} has no facts at step {place}"
            )
            assert replayed[name].columns == facts.columns
            if name == "timeline":  # its table is of the steps in sight, and live the last seconds are
                steps = {row[0]: row for row in replayed[name].rows}
                shared = [row for row in facts.rows if row[0] in steps]
                assert shared
                assert shared == [steps[row[0]] for row in shared]
            else:
                assert replayed[name].rows == facts.rows, f"{name} at step {place}"


def test_one_cursor_moves_all_and_a_selection_is_everywhere(qtbot: QtBot, ready: MainWindow) -> None:
    window = ready
    built = everything_shown(window)
    play(qtbot, window, EngineConfig(max_running=8), "mixed-lengths", 6)
    scope = window.bridge.scope
    scope.catch_up()
    qtbot.keyClick(window.page, Qt.Key.Key_Comma)
    qtbot.keyClick(window.page, Qt.Key.Key_Comma)
    place = scope.place
    assert place == scope.steps - 3
    summaries = {name: panel.summary.accessibleName() for name, panel in built.items()}
    scope.catch_up()
    assert f"step {scope.step_at(place).step:,}" in built["step"].summary.accessibleName(), summaries
    scope.select(3)
    assert window.page.wall.cards.current == 3
    assert window.page.transcript.request == 3
    window.page.wall.cards._choose(1)
    assert scope.request == 1
    scope.select(-1)
    assert window.page.wall.cards.current is None
    qtbot.keyClick(window.page, Qt.Key.Key_F)
    assert scope.following


def test_a_closed_panel_is_not_built_and_takes_no_record(qtbot: QtBot, ready: MainWindow) -> None:
    window = ready
    play(qtbot, window, EngineConfig(max_running=8), "mixed-lengths", 4)
    hidden = [name for name, place in window.page.places.items() if place.panel is None]
    assert {"roofline", "memory", "machine", "step"} <= set(hidden)
    window.page.see_inside()
    qtbot.waitUntil(lambda: window.page.places["step"].panel is not None)
    step = window.page.places["step"].panel
    assert step is not None
    qtbot.waitUntil(lambda: step.caught_up, timeout=WAIT)
    window.page.docks["step"].close()
    taken = step._position
    play(qtbot, window, EngineConfig(max_running=4), "mixed-lengths", 2)
    assert step._position in (0, taken)
    assert not step.caught_up
    window.page.see_inside(False)
    assert not window.page.cursor_bar.inside.isChecked()


@pytest.mark.parametrize("name", ["dark", "light"])
@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_every_panel_is_drawn_empty_and_full_in_both_themes(
    qtbot: QtBot, window: MainWindow, name: str, zoom: float
) -> None:
    theme.set_theme(name)
    theme.set_zoom(zoom)
    for insight in INSIGHTS:
        panel = insight.build(window.bridge.scope)
        qtbot.addWidget(panel)
        panel.resize(400, 300)
        panel.show()
        window.bridge.scope.catch_up()
        image = panel.grab().toImage()
        colors = {
            image.pixelColor(QPoint(x, y)).rgb()
            for x in range(0, image.width(), 3)
            for y in range(0, image.height(), 3)
        }
        assert len(colors) > 2, f"{insight.name} says something when there is nothing"
        assert panel.facts().columns
        panel.close_down()
        panel.close()


def test_the_lanes_of_a_race_show_every_panel_on_one_clock(qtbot: QtBot, ready: MainWindow) -> None:
    window = ready
    window.show_page(COMPARE)
    page = window.compare
    assert page is not None
    lanes = tuple(map(LaneChoice.parse, ("static:4", "continuous:4")))
    page.setup.take(RaceChoice("mixed-lengths", lanes, count=6))
    page.start()
    qtbot.waitUntil(lambda: page.race.report is not None and page.race.can_replay, timeout=WAIT)
    page.race.seek(page.race.busiest)  # where both lanes compute, however long they take
    for index, insight in enumerate(INSIGHTS, 1):
        page.replay.view.setCurrentIndex(index)
        for view in page.views:
            panel = view._places[insight.name].build()
            qtbot.waitUntil(panel.isVisible)
            qtbot.waitUntil(lambda panel=panel: panel.caught_up, timeout=WAIT)
            view.lane.scope.catch_up()
            rows = list(panel.facts().rows)
            rare = (
                "machine",
                "beams",
                "experts",
                "attention",
            )  # the one is read twice a second, the others were not asked for
            assert rows or insight.name in rare, f"{insight.name} of {view.lane.name}"
    page.race.seek(page.race.longest / 2)
    moments = [view.lane.scope.now - view.lane.scope.origin for view in page.views]
    clock = page.race.clock
    for view, moment in zip(page.views, moments, strict=True):
        assert moment == pytest.approx(min(clock, view.lane.span), abs=0.05)
    first = page.views[0].lane.scope
    qtbot.keyClick(page, Qt.Key.Key_Period)
    assert page.race.clock > clock
    assert first.step is not None
    page.replay.view.setCurrentIndex(0)
    assert page.views[0].body.currentWidget() is page.views[0].timeline


def test_the_first_drawing_of_a_moment_is_the_right_one(qtbot: QtBot, window: MainWindow) -> None:
    trace = Trace(synthetic_trace(streams=8, tokens_per_second=400, seconds=3, faults=0))
    trace.complete = True
    window.bridge.show(trace)
    scope = window.bridge.scope
    scope.catch_up()
    scope.show_at(scope.origin + 0.6 * (scope.end - scope.origin))
    for insight in INSIGHTS:
        panel = insight.build(scope)
        qtbot.addWidget(panel)
        panel.resize(900, 400)
        panel.show()
        panel.catch_up()
        first = panel.summary.accessibleName(), panel.grab().toImage()
        panel.catch_up()
        assert (panel.summary.accessibleName(), panel.grab().toImage()) == first, insight.name
        panel.close_down()


@pytest.mark.parametrize("origin", [1.1, 2.3], ids=["it comes out earlier", "it comes out later"])
def test_a_moment_that_was_told_from_another_zero_is_of_the_same_step_in_every_panel(
    qtbot: QtBot, origin: float
) -> None:
    ends = np.arange(1, 600) * 0.0171 + origin + 0.0171 * 0.37
    steps = [step(i, e - 0.01, e, [(0, 3 + i, 1, Kind.DECODE)], {0: 7}) for i, e in enumerate(ends.tolist())]
    scope = Scope()
    panels = timeline, memory, roofline = TimelinePanel(scope), MemoryBill(scope), Roofline(scope)
    qtbot.addWidget(timeline, before_close_func=lambda widget: scope.stop())
    for panel in panels:
        qtbot.addWidget(panel)
        panel.resize(600, 300)
        panel.show()
    scope.show(Trace([header(EngineConfig()), submitted(origin, 0, 3), *steps]))
    scope.catch_up()
    again = ends - origin + origin
    off = np.flatnonzero(again != ends)[:8].tolist()
    assert len(off) == 8
    for place in off:
        for moment in (float(ends[place]), float(again[place])):
            scope.show_at(moment)
            for panel in panels:
                panel.catch_up()
            assert scope.place == place
            assert timeline.view.accessibleDescription().count(f"step {place:,} ") == 1
            held = memory.moment()
            assert held is not None
            assert held.step == place
            assert roofline.plot.place == place


def test_a_prompt_that_is_read_is_not_called_nothing(
    open_panel: Callable[..., InsightPanel], monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    said: list[str] = []
    say = Painted.say_empty
    monkeypatch.setattr(
        Painted, "say_empty", lambda self, p, words, **how: said.append(words) or say(self, p, words, **how)
    )
    read = [header(EngineConfig()), submitted(0.0, 0, 900)]
    for kind in (TimelinePanel, StepInspector, MemoryBill, Roofline):
        for records, words in ((read[:1], "nothing has run yet|No step yet"), (read, COMING)):
            panel = open_panel(kind, Trace(records), 480, 320)
            said.clear()
            panel.picture.grab()
            assert any(re.search(words, each, re.I) for each in said), (kind, said)
    bar = CursorBar(panel.scope)
    qtbot.addWidget(bar)
    assert bar.words.accessibleName() == "the first step is being computed"


@pytest.mark.parametrize("width", [130, 240, 600])
def test_the_budget_s_name_is_whole_or_shorter(
    open_panel: Callable[..., InsightPanel], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    placed: list[tuple[float, str]] = []
    say = paint.say_on_plate
    monkeypatch.setattr(
        paint,
        "say_on_plate",
        lambda p, face, x, y, words, *more: placed.append((x, words)) or say(p, face, x, y, words, *more),
    )
    panel = open_panel(TimelinePanel, Trace(lane_trace("continuous", slots=4, requests=10)), width, 420)
    panel.picture.grab()
    area = panel.view.area()
    told = [(x, words) for x, words in placed if "↑" in words]
    assert all(x >= area.left() for x, _ in told)
    if width >= 240:
        assert told[0][1] == ("budget 2,048 ↑" if width == 600 else "2,048 ↑") or told[0][1].startswith("budget")
