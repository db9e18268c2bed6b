"""Presenting: what a room sees, what a speaker does with the keys, and that all is as before after it."""

import getpass
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.compare.choice import LaneChoice, RaceChoice
from app.session.lessee import Phase
from app.stage.notes_window import clock_words
from app.stage.scene_file import read_scene, shipped_tour
from app.stage.spotlight import in_sight as place_in_sight
from app.stage.tour import Tour
from app.ui.look import theme
from app.window.main_window import COMPARE, MainWindow
from tests.app.painted_words import painted_words, unread_from_afar
from tests.app.stage.test_touring import RUN, begin, scenes

WAIT = 60_000
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
NOTED = RUN.replace("seconds = 0.5", 'seconds = 0.5\nnotes = "Look at the room."')


def present(qtbot: QtBot, window: MainWindow) -> None:
    qtbot.keyClick(window, Qt.Key.Key_F5)
    assert window.isFullScreen()
    window.showNormal()  # the offscreen screen is smaller
    window.resize(*theme.STAGE)


def in_sight(window: MainWindow) -> set[str]:
    return {each.objectName() for each in window.findChildren(QWidget) if each.isVisible() and each.objectName()}


def at_rest(qtbot: QtBot, tour: Tour, number: int) -> None:
    """That scene stands at its last point, and it is told."""
    qtbot.waitUntil(lambda: tour.number == number and tour.over and tour.words == "Last.", timeout=WAIT)


def test_a_speaker_has_every_key_and_a_room_sees_no_apparatus(qtbot: QtBot, ready: MainWindow, tmp_path: Path) -> None:
    window, touring, bar, presenting = ready, ready.touring, ready.touring.bar, ready.presenting
    window.resize(*theme.STAGE)
    qtbot.waitUntil(lambda: "requests" in window.page.docks, timeout=WAIT)
    for place in window.page.places.values():
        place.build()  # else a panel comes when it has its turn
    before = in_sight(window)
    tour = begin(window, scenes(tmp_path, NOTED, RUN.replace("Two words", "Three words")))
    tour.replays = False
    at_rest(qtbot, tour, 0)
    present(qtbot, window)
    docks = window.page.docks  # what is pointed at has the page for itself
    qtbot.waitUntil(lambda: docks["kv_map"].isVisible() and not docks["timeline"].isVisible(), timeout=WAIT)
    assert bar.pointed.text() == "Last."
    away = ("top_bar", "banner", "composer", "cursor_speed", "cursor_back", "see_inside", "scene_try", "kv_map_menu")
    assert not in_sight(window) & set(away)
    assert bar.pointed.isVisible()
    assert not bar.caption.isVisible()

    qtbot.keyClick(bar, Qt.Key.Key_2)
    at_rest(qtbot, tour, 1)
    qtbot.keyClick(bar, Qt.Key.Key_Left)
    at_rest(qtbot, tour, 0)
    qtbot.keyClick(bar, Qt.Key.Key_7)
    assert tour.number == 0, "there is no seventh"

    qtbot.keyClick(bar, Qt.Key.Key_Q)
    assert (bar.question.isVisible(), bar.question.text()) == (True, "Why?")
    qtbot.keyClick(bar, Qt.Key.Key_Q)
    assert bar.question.text() == "Because."
    qtbot.keyClick(bar, Qt.Key.Key_Q)
    assert not bar.question.isVisible()
    assert bar.pointed.isVisible()

    scope = window.bridge.scope
    length = scope.end - scope.origin
    for seconds in (20.0, 60.0):
        qtbot.keyClick(bar, Qt.Key.Key_S)
        assert scope.playing
        assert scope.speed == pytest.approx(length / seconds)
        assert f"in {seconds:.0f} s" in bar.status.text()
    qtbot.keyClick(bar, Qt.Key.Key_Space)
    assert not scope.playing

    qtbot.keyClick(window, Qt.Key.Key_B)
    assert presenting.curtain is not None
    assert presenting.curtain.size() == window.size()
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert not presenting.curtain.isVisible()
    qtbot.keyClick(window, "?")
    assert presenting.keys is not None
    assert presenting.keys.isVisible()
    assert unread_from_afar(presenting.keys) == []
    qtbot.keyClick(window, "?")
    assert not presenting.keys.isVisible()

    qtbot.keyClick(window, Qt.Key.Key_N)
    notes = presenting.notes
    assert notes is not None
    assert notes.isVisible()
    assert (notes.notes.text(), notes.answer.text()) == ("Look at the room.", "Because.")
    qtbot.waitUntil(lambda: notes.pointed.text() == tour.words)
    assert (notes.then.text(), notes.first.text()) == ("Next: Three words", "One. Two.")
    qtbot.keyClick(notes, Qt.Key.Key_PageDown)
    at_rest(qtbot, tour, 1)
    assert (notes.then.text(), notes.pointed.text()) == ("The last scene.", "Last.")
    assert scope.speed == window.page.cursor_bar.speed.currentData(), "slow motion is of one scene"

    said = " ".join(word.text for shown in (window, notes) for word in painted_words(shown))
    said += window.windowTitle() + notes.windowTitle()
    assert not [secret for secret in (str(Path.home()), str(tmp_path), f"/{getpass.getuser()}/") if secret in said]

    qtbot.keyClick(notes, Qt.Key.Key_Escape)
    assert not notes.isVisible()
    assert touring.on
    assert not theme.presenting()
    assert bar.next.isVisible()
    touring.leave()
    qtbot.waitUntil(lambda: touring.tour is None, timeout=WAIT)
    of_the_run = {"take_tour", "timeline_live", "kv_empty", "kv_grid", "kv_legend", "kv_rest"}
    assert in_sight(window) ^ before <= of_the_run, "but for what tells of the run on show"


def test_a_tour_that_begins_in_full_screen_is_read_from_the_back_row_too(qtbot: QtBot, window: MainWindow) -> None:
    """Panels that have never been on show are made for a desk."""
    present(qtbot, window)
    window.touring.recorded = True
    tour = begin(window, (read_scene(shipped_tour() / "05-static.toml"),))
    tour.replays = False
    qtbot.waitUntil(lambda: tour.over and bool(tour.words), timeout=WAIT)
    panel = window.page.docks["timeline"]
    qtbot.waitUntil(lambda: "12 %" in " ".join(word.text for word in painted_words(panel)), timeout=WAIT)
    assert tour.show is not None
    shown = tour.show.place(tour.scene.points[0].on)
    assert shown is not None
    qtbot.waitUntil(lambda: tour.spotlight.lit == place_in_sight(shown, window.pages), timeout=WAIT)
    assert unread_from_afar(panel) == []


def test_four_lanes_their_replay_and_the_winner_are_in_sight_at_once(qtbot: QtBot, ready: MainWindow) -> None:
    window = ready
    window.show_page(COMPARE)
    compare = window.compare
    assert compare is not None
    lanes = ("static:2", "dynamic:2", "continuous:2", "continuous:8")
    compare.setup.take(RaceChoice("burst", tuple(map(LaneChoice.parse, lanes)), 1024, 4))
    present(qtbot, window)
    compare.start()
    qtbot.waitUntil(lambda: compare.race.phase is Phase.OVER and compare.race.report is not None, timeout=WAIT)
    qtbot.waitUntil(lambda: all(lane.playback.caught_up for lane in compare.race.lanes), timeout=WAIT)
    qtbot.waitUntil(compare.verdict.isVisible)
    told = compare.verdict.verdict
    assert told is not None
    assert "as fast as" in told.words
    assert "one run each" in told.reasons
    for shown in (*compare.views, compare.legend, compare.verdict, compare.replay):
        assert shown.isVisible()
        assert window.rect().contains(shown.rect().translated(shown.mapTo(window, shown.rect().topLeft())))
    assert compare.lanes_place.verticalScrollBar().maximum() == 0, "nothing is below the fold"
    assert unread_from_afar(compare) == []
    assert window.size().toTuple() == theme.STAGE
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert compare.setup.isVisible()
    assert compare.charts.isVisible()
    assert not compare.verdict.isVisible()


def test_the_time_of_a_talk_is_told_in_minutes_and_hours() -> None:
    assert [clock_words(seconds) for seconds in (0, 65.9, 3723)] == ["0:00", "1:05", "1:02:03"]
