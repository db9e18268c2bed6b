"""The Compare page over the real engine process and the demo model."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QPixmap, QWheelEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QComboBox,
    QFileDialog,
    QLineEdit,
    QPushButton,
    QScrollArea,
    QSlider,
    QSpinBox,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app import storage
from app.bench.frames import FrameMeter
from app.bench.race import race_frames
from app.compare.choice import LaneChoice, RaceChoice
from app.compare.page import ComparePage
from app.compare.race.agreement_light import AgreementLight, light_words
from app.compare.race.lane_show import LaneState
from app.inside.timeline.axis import Axis
from app.inside.timeline.view import TimelineView
from app.playback.bridge import Bridge
from app.session.lessee import Phase
from app.session.session import LEASED_WORDS, Session, SessionState
from app.ui.look import theme
from app.window.main_window import COMPARE, PLAY, MainWindow
from engine import EngineConfig, ModelSpec
from engine.compare import Agreement, Parting, lane_run, load_race
from engine.trace import FinishReason

pytestmark = pytest.mark.slow

WAIT = 60_000


def compare_page(window: MainWindow, *lanes: str, count: int = 4, **changes: object) -> ComparePage:
    """The page, set to a short race."""
    window.show_page(COMPARE)
    page = window.compare
    assert page is not None
    choice = RaceChoice("burst", tuple(LaneChoice.parse(text) for text in lanes), count=count)
    page.setup.take(replace(choice, **changes))  # type: ignore[arg-type]
    return page


def over(qtbot: QtBot, page: ComparePage) -> None:
    qtbot.waitUntil(lambda: page.race.phase is Phase.OVER, timeout=WAIT)


def states(page: ComparePage) -> list[LaneState]:
    return [lane.state for lane in page.race.lanes]


def button(page: ComparePage, name: str) -> QPushButton:
    found = page.findChild(QPushButton, name)
    assert found is not None
    return found


def test_two_lanes_are_raced_stopped_half_way_raced_again_and_the_table_is_exported(
    qtbot: QtBot, ready: MainWindow, tmp_path: Path
) -> None:
    page = compare_page(ready, "continuous:4", "continuous:2", count=8)
    race = page.race
    assert page.empty.isVisible()
    qtbot.keyClick(page, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    page.race_action.trigger()
    qtbot.waitUntil(lambda: states(page) == [LaneState.DONE, LaneState.RUNNING], timeout=WAIT)
    assert page.setup.race.text() == "Stop"
    assert page.views[0].status.text().startswith(("replay", "done")), (
        "the finished lane replays beside the running one"
    )
    page.setup.race.click()
    over(qtbot, page)
    assert states(page) == [LaneState.DONE, LaneState.STOPPED]
    assert page.notice.title.text() == "Stopped: 1 of 2 lanes"
    assert race.report is not None
    assert race.can_replay

    page.start()
    over(qtbot, page)
    assert states(page) == [LaneState.DONE, LaneState.DONE]
    assert not page.notice.isVisible()
    qtbot.waitUntil(lambda: all(lane.playback.caught_up for lane in race.lanes), timeout=WAIT)
    qtbot.waitUntil(lambda: [v.figures.finished for v in page.views] == [8, 8], timeout=WAIT)
    assert page.views[1].status.text().startswith("done in")
    assert "same tokens in every lane" in page.result.light.text()
    page.export.copy("Markdown")
    assert "| output throughput |" in QGuiApplication.clipboard().text()
    for kind in ("csv", "json", "md"):
        page.export.save(tmp_path / f"race.{kind}")
    assert (tmp_path / "race.csv").read_text(encoding="utf-8").startswith("measure,")
    assert (tmp_path / "race.json").read_text(encoding="utf-8").startswith("{")
    kept = [load_race(file)[0] for file in sorted(storage.runs().glob("*.bsrace"))]
    assert [[len(race.traces(i)) for i in range(2)] for race in kept] == [[1, 0], [1, 1]], "also one that was stopped"
    assert {len(trace.requests) for race in kept for i in range(2) for trace in race.traces(i)} == {8}


def test_a_race_is_saved_and_opened_again_in_a_fresh_window(qtbot: QtBot, ready: MainWindow, tmp_path: Path) -> None:
    page = compare_page(ready, "continuous:4", f"continuous:2:model={tmp_path}", "continuous:2", repeats=2)
    page.start()
    over(qtbot, page)
    assert states(page) == [LaneState.DONE, LaneState.FAILED, LaneState.DONE]
    assert str(tmp_path) in page.views[1].error.text(), "it says so in its place, and the others finish"
    assert page.views[1].error.isVisible()
    assert page.views[1].status.property("role") == "error"
    assert page.result.comparison is not None
    assert page.result.comparison.errors[1]
    assert ready.session.state is SessionState.READY
    assert ready.session.card is not None
    assert ready.session.card.source == "demo", "Play has its own model again"
    assert page.save_action.isEnabled()
    page.save_action.trigger()
    dialog = page.findChild(QFileDialog, "export_dialog")
    assert dialog is not None
    assert "*.bsrace" in dialog.selectedNameFilter()
    dialog.reject()
    for kind in ("bsrace", "png", "svg"):
        page.export.save(tmp_path / f"mine.{kind}")
    assert not QPixmap(str(tmp_path / "mine.png")).isNull()
    assert "<svg" in (tmp_path / "mine.svg").read_text(encoding="utf-8")
    fresh = MainWindow(Session(), Bridge())
    try:
        fresh.show()
        fresh.start(ModelSpec("demo"), EngineConfig(), tmp_path / "mine.bsrace")
        qtbot.waitUntil(lambda: fresh.compare is not None and fresh.compare.race.report is not None, timeout=WAIT)
        again = fresh.compare
        assert again is not None
        assert fresh.session.state is SessionState.EMPTY, "nothing is loaded for it"
        assert again.result.comparison == page.result.comparison
        assert again.setup.choice == page.setup.choice
        assert states(again) == states(page) == [LaneState.DONE, LaneState.FAILED, LaneState.DONE]
        assert str(tmp_path) in again.views[1].error.text()
        assert again.race.span == page.race.span
        again.race.seek(0.05 * again.race.longest)
        qtbot.waitUntil(lambda: again.views[0].status.text().startswith("replay"), timeout=WAIT)
        again.export.save(tmp_path / "copy.bsrace")
        assert (tmp_path / "copy.bsrace").read_bytes() == (tmp_path / "mine.bsrace").read_bytes()
        fresh.open_path(tmp_path / "gone.bsrace")
        qtbot.waitUntil(lambda: again.notice.title.text() == "The race was not opened", timeout=WAIT)
    finally:
        with qtbot.waitSignal(fresh.closed, timeout=WAIT):
            fresh.close()
        fresh.deleteLater()


def test_quantizations_are_told_apart_and_their_other_tokens_are_no_fault(qtbot: QtBot, ready: MainWindow) -> None:
    page = compare_page(ready, "continuous:4", "continuous:4:quantization=nf4", count=4)
    page.start()
    qtbot.waitUntil(
        lambda: [view.sentence.text().split("  ·  ")[0] for view in page.views[1:]] == ["nf4"], timeout=WAIT
    )
    over(qtbot, page)
    assert [view.sentence.text().split("  ·  ")[0] for view in page.views] == ["float32", "nf4, bfloat16"]
    report = page.race.report
    assert report is not None
    assert report.other_weights == (False, True)
    words = page.result.light.text()
    assert "same tokens" in words or words.endswith(", from other weights")


def test_a_replay_plays_all_lanes_on_one_clock_whichever_is_scrubbed_or_zoomed(qtbot: QtBot, ready: MainWindow) -> None:
    page = compare_page(ready, "continuous:4", "continuous:1")
    race = page.race
    page.start()
    over(qtbot, page)
    bar = page.replay
    assert bar.button.isEnabled()
    bar.speed.setCurrentIndex(bar.speed.findData(0.1))
    page.setFocus()
    qtbot.keyClick(page, Qt.Key.Key_Space)
    assert race.replaying
    qtbot.waitUntil(lambda: 0 < race.clock < race.longest, timeout=WAIT)
    qtbot.keyClick(page, Qt.Key.Key_Space)
    assert not race.replaying
    bar.slider.setValue(bar.slider.maximum() // 10)
    qtbot.waitUntil(lambda: all(lane.playback.caught_up for lane in race.lanes), timeout=WAIT)
    early = sum(len(v.tokens) for lane in race.lanes for v in lane.playback.requests.values())
    assert all(view.status.text().startswith("replay") for view in page.views)
    race.speed = 1000.0
    race.play()
    qtbot.waitUntil(lambda: not race.replaying and race.clock == race.longest, timeout=WAIT)
    qtbot.waitUntil(lambda: all(lane.playback.caught_up for lane in race.lanes), timeout=WAIT)
    assert sum(len(v.tokens) for lane in race.lanes for v in lane.playback.requests.values()) > early
    stand_on_one_clock(qtbot, page)


def wheel(widget: QWidget, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> QWheelEvent:
    middle, turn, none = QPointF(widget.rect().center()), QPoint(0, 120), QPoint()
    phase, buttons = Qt.ScrollPhase.NoScrollPhase, Qt.MouseButton.NoButton
    return QWheelEvent(middle, widget.mapToGlobal(middle), none, turn, buttons, modifiers, phase, False)


def stand_on_one_clock(qtbot: QtBot, page: ComparePage) -> None:
    first, second = (view.timeline for view in page.views)
    whole = first.range()
    assert second.range() == whole == (0.0, page.race.span)
    plain = wheel(second)
    QApplication.sendEvent(second, plain)
    assert not plain.isAccepted(), "it scrolls the page"
    QApplication.sendEvent(second, wheel(second, Qt.KeyboardModifier.ControlModifier))
    assert first.range() == second.range() != whole
    assert page.race.clock == page.race.longest, "streams and figures stand at the end"
    page.replay.view.setCurrentIndex(1)
    qtbot.waitUntil(lambda: len(page.findChildren(TimelineView)) == 2, timeout=WAIT)
    assert 0 < page.race.clock < page.race.longest, "what looks inside, where most was running"
    scopes = [view.lane.scope for view in page.views]
    qtbot.waitUntil(lambda: [scope.step and scope.step.rows for scope in scopes] == [4, 1], timeout=WAIT)
    views = [first, second, *page.findChildren(TimelineView)]

    def shown() -> tuple[float, float]:
        assert len({view.range() for view in views}) == 1
        return first.range()

    assert shown() != whole, "those that are opened later show what the others do"
    before = shown()
    views[2].zoom_by(0.5)
    assert shown() != before
    views[3].set_axis(Axis.STEPS)
    views[3].zoom_by(0.5)
    views[2].pan_by(0.2)
    views[3].set_axis(Axis.TIME)
    shown()
    race = page.race
    race.seek(0.98 * race.longest)  # out of sight
    qtbot.waitUntil(lambda: all(lane.playback.caught_up for lane in race.lanes), timeout=WAIT)
    qtbot.wait(100)
    shown()
    first.see_all()
    assert shown() == whole
    sooner, later = sorted(race.lanes, key=lambda lane: lane.span)
    race.seek(0.5 * sooner.span)
    qtbot.waitUntil(lambda: not sooner.scope.following, timeout=WAIT)
    qtbot.wait(100)
    second.zoom_by(0.9)
    second.pan_by(1.0)  # to the end
    before = shown()
    race.seek((sooner.span + later.span) / 2)  # in sight, and one lane was over before
    qtbot.waitUntil(lambda: sooner.scope.following and not later.scope.following, timeout=WAIT)
    qtbot.wait(100)
    assert shown() == before


def test_an_engine_that_dies_costs_its_lane_and_the_next_gets_a_fresh_one(qtbot: QtBot, ready: MainWindow) -> None:
    page = compare_page(ready, "continuous:2", "continuous:4", count=16)
    page.start()
    qtbot.waitUntil(lambda: bool(states(page)) and states(page)[0] is LaneState.RUNNING, timeout=WAIT)
    os.kill(ready.session.engine_pid or 0, signal.SIGKILL)
    over(qtbot, page)
    assert states(page) == [LaneState.FAILED, LaneState.DONE]
    assert "SIGKILL" in page.views[0].error.text()
    assert ready.session.state is SessionState.READY


def test_play_is_refused_during_a_race_has_its_texts_and_config_after_it_and_then_a_race_is_refused(
    qtbot: QtBot, ready: MainWindow
) -> None:
    play, session, bridge = ready.page, ready.session, ready.bridge
    play.sampling.form["max_tokens"].set(8)
    play.composer.count.setValue(2)
    play.composer.send()
    qtbot.waitUntil(lambda: len(bridge.requests) == 2 and not bridge.busy, timeout=WAIT)
    texts = [view.text for view in bridge.requests.values()]
    page = compare_page(ready, "continuous:2", count=16)
    page.start()
    qtbot.waitUntil(lambda: session.state is SessionState.LEASED, timeout=WAIT)
    ready.show_page(PLAY)
    assert "race" in ready.top_bar.status.accessibleName()
    assert not play.composer.send_button.isEnabled()
    assert play.composer.send_button.toolTip() == LEASED_WORDS
    play.composer.send()
    qtbot.waitUntil(lambda: play.composer.message.accessibleName() == LEASED_WORDS)
    play.batching.form["max_running"].set(5)
    qtbot.waitUntil(lambda: session.config.max_running == 5)
    over(qtbot, page)
    assert [view.text for view in bridge.requests.values()] == texts
    assert session.trace is not None
    assert session.trace.header.config == EngineConfig(max_running=5), "what was changed meanwhile holds now"
    play.composer.send()
    qtbot.waitUntil(lambda: len(bridge.requests) == 2 and not bridge.busy and session.ready, timeout=WAIT)

    play.sampling.form["max_tokens"].set(400)
    play.sampling.form["ignore_eos"].set(True)
    play.composer.send()
    qtbot.waitUntil(lambda: len(bridge.requests) == 4 and bridge.busy, timeout=WAIT)
    raced = page.race.result
    page = compare_page(ready, "continuous:4")
    page.start()
    qtbot.waitUntil(lambda: "Stop them first" in page.notice.text.text(), timeout=WAIT)
    assert page.notice.isVisible()
    assert page.race.result is raced, "none was begun"
    page.notice.action.click()
    qtbot.waitUntil(lambda: not bridge.busy, timeout=WAIT)
    assert {view.reason for view in list(bridge.requests.values())[2:]} == {FinishReason.CANCELLED}


def test_a_workload_that_cannot_be_read_is_told_and_a_file_dropped_on_the_page_is_its_workload(
    qtbot: QtBot, window: MainWindow, tmp_path: Path
) -> None:
    page = compare_page(window, "continuous:4", workload="/nowhere/prompts.txt", count=0)
    page.start()
    qtbot.waitUntil(page.notice.isVisible, timeout=WAIT)
    assert "/nowhere/prompts.txt" in page.notice.text.text()
    assert window.session.state is SessionState.EMPTY
    assert page.setup.race.isEnabled()
    path = tmp_path / "mine.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    window.open_path(path)
    assert page.setup.choice.workload == str(path)
    assert page.about.text() == str(path)
    window.show_page(PLAY)
    window.open_path(path)
    assert window.page.composer.draft().total == 2


def test_repeats_are_in_the_table_and_the_replay_shows_the_median(qtbot: QtBot, ready: MainWindow) -> None:
    page = compare_page(ready, "continuous:4", "continuous:2", repeats=3, order="rotated")
    page.start()
    over(qtbot, page)
    report = page.race.report
    assert report is not None
    row = report.comparison.row("duration")
    assert row is not None
    assert [len(cell.values) for cell in row.cells] == [3, 3]
    for lane in page.race.lanes:
        assert sorted(lane.traces) == [0, 1, 2]
        assert lane.span == pytest.approx(sorted(t.duration for t in lane.traces.values())[1], rel=0.2)
    page.setup.rules.limits["e2e"].set(0.001)
    qtbot.waitUntil(lambda: page.race.report is not report, timeout=WAIT)
    assert page.result.comparison is not None
    goodput = page.result.comparison.row("goodput")
    assert goodput is not None
    assert goodput.cells[0].value == 0
    assert page.result.comparison.row("cost") is None
    page.setup.rules.cost["price"].set(3.6)
    qtbot.waitUntil(lambda: page.result.comparison.row("cost") is not None, timeout=WAIT)
    cost, speed = (page.result.comparison.row(key) for key in ("cost", "output_throughput"))
    assert cost is not None
    assert speed is not None
    assert cost.cells[0].values == pytest.approx([1000 / value for value in speed.cells[0].values])
    assert "cost" in {row.measure.key for row in page.result.model.rows}


def test_a_lane_that_other_programs_disturbed_says_so_and_can_be_run_again(
    qtbot: QtBot, ready: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_run, "DISTURBED", 0.0)
    page = compare_page(ready, "continuous:4", "continuous:2", repeats=2)
    page.start()
    qtbot.waitUntil(lambda: len(page.views) == 2, timeout=WAIT)
    first, second = page.views
    second.timeline.set_slots(64)
    over(qtbot, page)
    report, before = page.race.report, [dict(lane.traces) for lane in page.race.lanes]
    assert report is not None
    assert "other programs used" in report.comparison.disturbances[1]
    assert second.sentence.accessibleName().startswith("Other programs used")
    assert page.result.disturbed.text() == "Other programs disturbed continuous · 4, continuous · 2."
    qtbot.waitUntil(lambda: "median of 2 runs, ±" in second.status.text(), timeout=WAIT)
    assert page.replay.geometry().bottom() < page._scroll.viewport().height(), "the lanes are as high as without a note"
    monkeypatch.setattr(lane_run, "DISTURBED", 1.1)
    page.race.result = replace(
        page.race.result, lane_runs=tuple(replace(r, others=1.2 * r.lane) for r in page.race.result.lane_runs)
    )
    second.again.click()
    assert not second.again.isVisible()
    over(qtbot, page)
    qtbot.waitUntil(lambda: page.race.report is not report, timeout=WAIT)
    assert not second.again.isVisible()
    assert second.sentence.accessibleName() == second.lane.sentence
    assert not page.result.disturbed.isVisible()
    now = [lane.traces for lane in page.race.lanes]
    assert [[now[lane][run] is before[lane][run] for run in (0, 1)] for lane in (0, 1)] == [[True] * 2, [False] * 2]
    assert not first.again.isVisible()


def test_closing_the_window_in_mid_race_leaves_nothing(qtbot: QtBot, ready: MainWindow) -> None:
    page = compare_page(ready, "continuous:2", "continuous:4", count=32)
    page.start()
    qtbot.waitUntil(lambda: bool(states(page)) and states(page)[0] is LaneState.RUNNING, timeout=WAIT)
    pid = ready.session.engine_pid
    assert pid is not None
    with qtbot.waitSignal(ready.closed, timeout=WAIT):
        ready.close()
    assert not psutil.pid_exists(pid)


def test_everything_on_the_page_has_a_name_and_can_be_reached_by_keyboard(qtbot: QtBot, window: MainWindow) -> None:
    page = compare_page(window, "static:8", "continuous")
    kinds = (QPushButton, QComboBox, QSlider, QSpinBox, QLineEdit, QAbstractButton)
    for sweeps in (False, True):
        page.setup.show_sweep(sweeps)
        for widget in (w for kind in kinds for w in page.findChildren(kind)):
            if isinstance(widget.parentWidget(), QSpinBox) or widget.objectName().startswith(("qt_", "banner_action")):
                continue
            words = widget.accessibleName() or (widget.text() if isinstance(widget, QAbstractButton) else "")
            assert words, f"{widget.objectName()} has no name for a screen reader"
            assert widget.focusPolicy() != Qt.FocusPolicy.NoFocus, f"{widget.objectName()} cannot have the focus"


def test_the_page_can_be_drawn_at_every_size_and_in_both_themes(qtbot: QtBot, window: MainWindow) -> None:
    page = compare_page(window, "static:8", "continuous-padded", "continuous", "chunked")
    for name, scale in (("dark", 0.75), ("light", 2.0), ("dark", 2.0), ("light", 0.75)):
        theme.set_theme(name)
        theme.set_zoom(scale)
        window.resize(1000, 700)
        for sweeps in (False, True):
            page.setup.show_sweep(sweeps)
            picture = window.grab().toImage()
            assert picture.pixelColor(2, picture.height() // 2).name() == theme.current().window.name()


def test_four_lanes_are_never_cut_off_at_the_right(qtbot: QtBot, ready: MainWindow) -> None:
    page = compare_page(ready, "static:8", "continuous-padded", "continuous", "chunked")
    ready.resize(1280, 720)
    page.start()
    over(qtbot, page)
    scroll = page.result.window().findChild(QScrollArea, "race_scroll")
    assert scroll is not None
    for zoom in (1.25, 1.5, 1.0, 0.75):
        theme.set_zoom(zoom)
        ready.resize(1280, 720)
        qtbot.waitUntil(lambda: ready.width() == 1280, timeout=WAIT)
        qtbot.waitUntil(lambda: scroll.widget().width() <= scroll.viewport().width(), timeout=WAIT)


def test_the_bench_measures_the_frames_of_a_race(qtbot: QtBot, window: MainWindow) -> None:
    measured = window.session.start(race_frames(window, FrameMeter(window.bridge), "demo", 2))
    qtbot.waitUntil(measured.done, timeout=WAIT)
    figures = measured.result()
    assert figures["frames"] > 5
    assert 0 < figures["p50_ms"] <= figures["p95_ms"]
    assert (figures["prompts"], len(figures["lanes"])) == (2, 4)
    assert window.pages.currentIndex() == PLAY
    assert window.session.state is SessionState.EMPTY


def test_the_light_does_not_speak_for_a_lane_that_was_not_played() -> None:
    same = Agreement(compared=4, partings=())
    assert light_words([None, same]) == "same tokens in every lane"
    assert light_words([None, None, same]) == "same tokens in 2 of 3 lanes"
    assert light_words([None]) == "one lane: no tokens to compare"
    assert light_words([None, None]) == "tokens known of one lane alone"  # the other failed, or is a server


def test_the_light_is_quiet_only_where_no_other_lane_differs(qtbot: QtBot) -> None:
    parting = Parting(0, 0, 3, (1, 2), ("a", "b"))
    same, other = Agreement(compared=4), Agreement(compared=4, partings=(parting,))
    light = AgreementLight()
    qtbot.addWidget(light)
    light.set_agreements(("one", "two", "three"), (None, same, other), (False, False, True))
    assert light.text().strip() == "tokens differ in 1 of 4, from other weights"
    light.set_agreements(("one", "two", "three"), (None, other, other), (False, False, True))
    assert light.text().strip() == "tokens differ in 1 of 4"
    light.set_agreements(("one", "two"), (None, same), (False, True))
    assert light.text().strip() == "same tokens in every lane"
