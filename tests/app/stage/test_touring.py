"""Tours that are interrupted, refused, or a person's own; what comes back when they are left."""

from pathlib import Path

import pytest
from PySide6.QtCore import QRect, Qt
from pytestqt.qtbot import QtBot

from app.session.session import SessionState
from app.stage.scene import Scene
from app.stage.scene_file import read_tour
from app.stage.spotlight import Spotlight
from app.stage.tour import LIVE, Tour
from app.ui.look.motion import moving
from app.window.main_window import MainWindow
from engine import EngineConfig

WAIT = 60_000
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
RUN = """title = "Two words"
caption = "One. Two."
question = "Why?"
answer = "Because."
workload = "burst"
count = 2
lanes = ["continuous:4"]
kv_tokens = 512
panels = ["timeline", "kv_map"]
seconds = 0.5

[[points]]
on = "timeline"
step = 8
request = 1
words = "First."

[[points]]
on = "kv_map"
at = 0.9
words = "Last."
"""
LONG = RUN.replace("count = 2", "count = 64").replace("continuous:4", "continuous:1")
TINY = RUN.replace("kv_tokens = 512", "kv_tokens = 32")


def scenes(folder: Path, *texts: str) -> tuple[Scene, ...]:
    for i, text in enumerate(texts):
        (folder / f"{i}.toml").write_text(text, encoding="utf-8")
    return read_tour(folder)


def begin(window: MainWindow, tour: tuple[Scene, ...]) -> Tour:
    window.touring.take(tour)
    assert window.touring.tour is not None
    return window.touring.tour


def standing(window: MainWindow) -> dict[str, tuple[bool, tuple[str, ...]]]:
    """Of each dock: whether it is in front, and which others share its place."""
    page = window.page
    return {
        name: (
            not dock.visibleRegion().isEmpty(),
            tuple(sorted(other.objectName() for other in page.area.tabifiedDockWidgets(dock))),
        )
        for name, dock in page.docks.items()
    }


def test_a_tour_points_in_its_turn_gives_up_what_runs_and_brings_back_texts_and_settings(
    qtbot: QtBot, ready: MainWindow, tmp_path: Path
) -> None:
    window, page, bar, session = ready, ready.page, ready.touring.bar, ready.session
    page.sampling.form["max_tokens"].set(64)
    page.composer.count.setValue(2)
    page.composer.send()
    qtbot.waitUntil(lambda: window.bridge.busy, timeout=WAIT)
    window.tour_action.trigger()
    assert window.touring.tour is None
    assert window.banner.title.text() == "Something is running"
    qtbot.waitUntil(lambda: not window.bridge.busy, timeout=WAIT)
    texts = [view.samples[0].text for view in window.bridge.requests.values()]
    assert not window.touring.card.button.isVisible(), "there are streams"
    page.docks["step"].raise_()
    layout = standing(window)

    (tmp_path / "scenes").mkdir()
    longer = RUN.replace("seconds = 0.5", "seconds = 1.5")  # than a busy machine holds a window up
    tour = begin(window, scenes(tmp_path / "scenes", longer, LONG, TINY))
    seen: list[tuple[str, int]] = []

    def held() -> bool:
        told = (bar.pointed.text(), window.bridge.scope.request)
        if told not in seen:
            seen.append(told)
        return tour.over

    qtbot.waitUntil(held, timeout=WAIT)
    assert [each for each in seen if each[0]] == [("First.", 1), ("Last.", -1)], "one after the other, as it is played"
    assert bar.isVisible()
    assert not window.bridge.scope.playing
    assert {name for name, dock in page.docks.items() if dock.isVisible()} == {"timeline", "kv_map"}
    assert session.card is not None
    assert session.config.kv_memory == 512 * session.card.kv_token_bytes
    before = window.bridge.scope.now
    qtbot.keyClick(bar, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: window.bridge.scope.now > before)

    bar.try_button.click()
    assert len(page.composer.draft().file) == 2

    qtbot.keyClick(window, Qt.Key.Key_PageDown)
    qtbot.waitUntil(lambda: tour.number == 1 and window.bridge.busy and len(window.bridge.requests) == 64, timeout=WAIT)
    assert bar.status.text() == LIVE
    qtbot.keyClick(window, Qt.Key.Key_PageDown)
    qtbot.waitUntil(lambda: tour.number == 2 and "could not be played" in bar.pointed.text(), timeout=WAIT)
    assert "KV pool" in bar.pointed.text(), "the reason is the engine's own"
    assert not window.bridge.busy, "what ran was given up"

    qtbot.keyClick(window, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: window.touring.tour is None, timeout=WAIT)
    assert session.config == EngineConfig(max_running=16)
    qtbot.waitUntil(lambda: len(window.bridge.requests) == 2 and not window.bridge.behind, timeout=WAIT)
    assert [view.samples[0].text for view in window.bridge.requests.values()] == texts
    assert window.runs.path is None, "they are the engine's own, not a saved run"
    assert window.bridge.scope.following, "at their end"
    assert not window.banner.isVisible()
    assert window.top_bar.status.text().startswith("demo stories")
    qtbot.waitUntil(lambda: standing(window) == layout)
    assert page.composer.isVisible()
    assert not page.composer.draft().file
    assert page.composer.count.value() == 2
    qtbot.keyClick(window, Qt.Key.Key_PageDown)
    assert window.touring.tour is None, "page keys are nobody's again"

    paging = next(each for each in window.commands if each.text().startswith("Scene 9: "))
    paging.trigger()
    qtbot.waitUntil(lambda: window.touring.tour is not None and window.touring.tour.number == 8, timeout=WAIT)
    assert bar.title.text() in paging.text()
    window.touring.leave()
    qtbot.waitUntil(lambda: window.touring.tour is None, timeout=WAIT)

    begin(window, scenes(tmp_path / "scenes", RUN, LONG, LONG))
    window.touring.bar.moved.emit(1)
    qtbot.waitUntil(lambda: window.bridge.busy, timeout=WAIT)
    with qtbot.waitSignal(window.closed, timeout=WAIT):  # in the midst of a scene
        window.close()
    assert session.state is SessionState.EMPTY
    assert page.composer.isVisibleTo(page)


def test_the_spotlight_jumps_where_nothing_should_move(qtbot: QtBot, window: MainWindow) -> None:
    light = Spotlight(window.pages)
    first, then = QRect(10, 10, 200, 100), QRect(300, 200, 100, 100)
    light.light(first)
    light.light(then)
    assert light.target == then
    if not moving():
        assert light.lit == then
    qtbot.waitUntil(lambda: light.lit == then)
    light.light(QRect())
    assert not light.isVisible()
