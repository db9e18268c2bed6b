"""The whole window over the real engine process and the demo model."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, QRect, Qt, QUrl
from PySide6.QtGui import QAction, QDropEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QComboBox,
    QDialog,
    QFileDialog,
    QLabel,
    QLineEdit,
    QPushButton,
    QSlider,
    QSpinBox,
    QTabBar,
    QToolButton,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app import storage
from app.desktop.settings.applied import Applied
from app.inside.timeline.selection import KEYS as TIMELINE_KEYS
from app.play.layout import SETUP
from app.playback.bridge import Bridge
from app.session.session import Session, SessionState
from app.ui.look import theme
from app.window.main_window import COMPARE, FIRST_SIZE, PLAY, MainWindow
from engine import EngineConfig, ModelSpec, load_trace
from engine.trace import FinishReason

pytestmark = pytest.mark.slow

WAIT = 30_000


def action(window: MainWindow, name: str) -> QAction:
    return next(a for a in window.commands if a.text() == name)


def find(window: MainWindow, kind: type, name: str) -> object:
    found = window.findChild(kind, name)
    assert found is not None, f"no {name}"
    return found


@contextmanager
def held_up(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def at_rest(qtbot: QtBot, window: MainWindow) -> None:
    """Waits until nothing in the window has moved for a fifth of a second."""
    before: list[QRect] = []
    while before != (now := [widget.geometry() for widget in window.findChildren(QWidget)]):
        before = now
        qtbot.wait(200)


def write(window: MainWindow, text: str, count: int, max_tokens: int = 24) -> None:
    window.page.sampling.form["max_tokens"].set(max_tokens)
    window.page.composer.prompt.setPlainText(text)
    window.page.composer.count.setValue(count)


def test_prompts_stream_to_their_end_and_follow_ups_open(qtbot: QtBot, ready: MainWindow) -> None:
    window, bridge = ready, ready.bridge
    assert "float32" in window.top_bar.status.accessibleName()
    write(window, "Tell me a story about a {fox|owl} and a {kite|boat}.", 8)
    window.page.composer.prompt.setFocus()
    qtbot.keyClick(window.page.composer.prompt, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: len(bridge.requests) == 8 and not bridge.busy, timeout=WAIT)
    assert all(view.text for view in bridge.requests.values())
    window.page.wall.cards.request_opened.emit(3)
    qtbot.waitUntil(window.page.transcript.isVisible)
    window.session.continue_chat(bridge.requests[3], "What then?").add_done_callback(window.page.transcript._on_created)
    qtbot.waitUntil(lambda: len(bridge.requests) == 9 and not bridge.busy, timeout=WAIT)
    qtbot.waitUntil(lambda: window.page.transcript.request == 8)
    window.page.batching.form["max_running"].set(4)
    qtbot.waitUntil(lambda: window.session.config.max_running == 4, timeout=WAIT)
    assert len(bridge.requests) == 9, "texts stay until the next prompt"


def test_a_new_session_is_empty_and_can_be_undone(qtbot: QtBot, ready: MainWindow) -> None:
    window, bridge, page = ready, ready.bridge, ready.page
    new = action(window, "New session")
    write(window, "Tell me a story.", 2, max_tokens=400)
    page.sampling.form["ignore_eos"].set(True)
    page.composer.send()
    qtbot.waitUntil(lambda: bridge.busy, timeout=WAIT)
    new.trigger()
    assert window.banner.title.text() == "Requests are running"
    assert bridge.busy
    window.banner.action.click()
    qtbot.waitUntil(lambda: not bridge.busy, timeout=WAIT)
    texts, before = [view.text for view in bridge.requests.values()], window.session.trace
    page.wall.cards.request_opened.emit(1)
    new.trigger()
    qtbot.waitUntil(lambda: window.session.trace is not before and not bridge.requests, timeout=WAIT)
    qtbot.waitUntil(lambda: not page.wall.cards.ids and page.transcript.request is None, timeout=WAIT)
    assert bridge.trace is window.session.trace
    assert window.session.ready
    assert window.banner.title.text() == "A new session"
    assert window.banner._passes.isActive(), "it goes by itself"
    window.banner.action.click()
    qtbot.waitUntil(lambda: [view.text for view in bridge.requests.values()] == texts, timeout=WAIT)
    assert window.runs.path is not None
    assert window.runs.path.exists()
    new.trigger()
    qtbot.waitUntil(lambda: not bridge.requests, timeout=WAIT)
    window.banner.tell("info", "A new session", "", passes=True)
    write(window, "Another one.", 1)
    page.composer.send()
    qtbot.waitUntil(lambda: len(bridge.requests) == 1 and not bridge.busy, timeout=WAIT)
    assert not window.banner.isVisible(), "its Undo is of another time"


def test_what_nobody_changed_stays_as_it_is_when_requests_end(qtbot: QtBot, ready: MainWindow) -> None:
    """A pool of no whole number of megabytes, which the panel can show rounded alone."""
    window, session = ready, ready.session
    config = replace(session.config, kv_memory=5_898_240)
    session.start(session.begin(config))
    qtbot.waitUntil(lambda: session.config == config, timeout=WAIT)
    write(window, "Tell me a story.", 2, 8)
    window.page.composer.send()
    qtbot.waitUntil(lambda: len(window.bridge.requests) == 2 and not window.bridge.busy, timeout=WAIT)
    qtbot.wait(1000)
    assert session.config == config
    assert len(window.bridge.requests) == 2


def test_a_change_of_limits_waits_for_the_running_requests(qtbot: QtBot, ready: MainWindow) -> None:
    window, bridge, engine = ready, ready.bridge, ready.session.engine_pid
    assert engine is not None
    write(window, "Tell me a story.", 4, 1000)
    window.page.sampling.form["ignore_eos"].set(True)
    window.page.composer.send()
    qtbot.waitUntil(lambda: len(bridge.requests) == 4, timeout=WAIT)
    with held_up(engine):  # however slow this process is, no request ends before it is stopped
        window.page.batching.form["max_running"].set(2)
        assert "Takes effect when the 4 running requests end" in window.page.batching.note.text()
        assert window.session.config.max_running == 16
        window.session.stop([0])
    qtbot.waitUntil(lambda: "when the 3 running requests end" in window.page.batching.note.text(), timeout=WAIT)
    action(window, "Stop, or cancel the load").trigger()
    qtbot.waitUntil(lambda: window.session.config.max_running == 2, timeout=WAIT)
    assert {view.reason for view in bridge.requests.values()} == {FinishReason.CANCELLED}
    assert not window.page.batching.note.isVisible()


def test_what_was_said_of_one_load_is_gone_in_the_next(qtbot: QtBot, ready: MainWindow) -> None:
    ready.banner.tell("info", "demo stories is loaded", "float32 on the CPU.")
    ready.session.start(ready.session.load(ModelSpec("demo-draft")))
    qtbot.waitUntil(lambda: ready.session.state is SessionState.LOADING)
    assert not ready.banner.isVisible()
    ready.session.cancel_load()
    qtbot.waitUntil(lambda: ready.session.state is SessionState.READY, timeout=WAIT)


def test_a_load_is_timed_from_when_it_was_asked_for_and_then_the_keys_are_the_prompts(
    qtbot: QtBot, window: MainWindow
) -> None:
    window.activateWindow()
    button = window.page.model.load
    button.setFocus()
    begun = time.perf_counter()
    with qtbot.waitSignal(window.session.config_changed, timeout=2 * WAIT):
        button.click()
    took, card = time.perf_counter() - begun, window.session.card
    assert card is not None
    assert max(card.load_seconds, 0.8 * took) <= window.session.load_seconds <= took
    assert f"loaded in {window.session.load_seconds:.1f} s" in window.page.model.facts.text()
    qtbot.waitUntil(lambda: window.focusWidget() is window.page.composer.prompt)


def test_the_first_window_is_no_larger_than_its_screen_and_has_room_at_twice_the_size(
    qtbot: QtBot, window: MainWindow
) -> None:
    there = window.screen().availableGeometry()
    assert (there.width(), there.height()) < FIRST_SIZE, "the screen of these tests is small"
    window.resize(*FIRST_SIZE)
    window.fit_screen()
    assert window.width() <= there.width()
    assert window.height() < there.height(), "its frame needs room too"
    folds_at_twice_the_size(qtbot, window)


def test_escape_cancels_a_load_and_the_panel_says_so(qtbot: QtBot, window: MainWindow) -> None:
    composer, cards = window.page.composer, window.page.wall.cards
    assert "press Load" in cards.empty_words
    composer.send()
    qtbot.waitUntil(composer.message.isVisible)
    window.session.start(window.session.load(ModelSpec("demo")))
    qtbot.waitUntil(lambda: window.session.state is SessionState.LOADING)
    assert "is loading" in cards.empty_words
    assert not composer.message.isVisible(), "what was said is done"
    panel = window.page.model
    assert panel.load.text() == "Cancel"
    assert panel.progress.isVisible()
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    action(window, "Stop, or cancel the load").trigger()
    qtbot.waitUntil(lambda: window.session.state is SessionState.EMPTY, timeout=WAIT)
    assert "cancelled" in panel.error.text()
    assert panel.load.text() == "Load"
    assert not panel.progress.isVisible()


def test_a_model_makes_room_with_a_word_that_goes_when_it_is_back(
    qtbot: QtBot, ready: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, session = psutil.virtual_memory(), ready.session
    monkeypatch.setattr(psutil, "virtual_memory", lambda: found._replace(available=1 << 20))
    session.load_progressed.connect(lambda status: session.cancel_load() if session.spec.source != "demo" else None)
    with qtbot.waitSignals([session.room_made, session.load_failed], timeout=WAIT):
        session.start(session.load(ModelSpec("demo-draft")))
        qtbot.waitUntil(ready.banner.isVisible, timeout=WAIT)
        assert "makes room" in ready.banner.title.text()
    assert session.ready
    assert session.spec == ModelSpec("demo")
    assert not ready.banner.isVisible()


def test_whatever_can_be_opened_is_listed_and_a_folder_that_is_no_model_is_told_in_the_panel(
    qtbot: QtBot, window: MainWindow, tmp_path: Path
) -> None:
    window.open_action.trigger()
    dialog = find(window, QFileDialog, "open_dialog")
    assert isinstance(dialog, QFileDialog)
    for ending in (".txt", ".jsonl", ".json", ".toml", ".bsrun", ".bsrace"):
        assert f"*{ending}" in dialog.nameFilters()[0]
    dialog.close()
    window.open_path(tmp_path)
    qtbot.waitUntil(lambda: "config.json" in window.page.model.error.text(), timeout=WAIT)
    assert window.page.model.path.text() == str(tmp_path)
    assert window.session.state is SessionState.EMPTY


def test_a_killed_engine_shows_a_banner_that_restarts_it_with_texts_kept(qtbot: QtBot, ready: MainWindow) -> None:
    window, bridge = ready, ready.bridge
    write(window, "Tell me a story about a fox.", 4, 400)
    window.page.sampling.form["ignore_eos"].set(True)
    window.page.composer.send()
    qtbot.waitUntil(lambda: len(bridge.requests) == 4 and all(v.tokens for v in bridge.requests.values()), timeout=WAIT)
    os.kill(window.session.engine_pid or 0, signal.SIGKILL)
    qtbot.waitUntil(window.banner.isVisible, timeout=WAIT)
    qtbot.waitUntil(lambda: not bridge.busy)
    texts = [view.text for view in bridge.requests.values()]
    assert all(texts)
    assert "The engine has stopped" in window.banner.title.text()
    assert "SIGKILL" in window.banner.text.text()
    assert not window.page.composer.send_button.isEnabled()
    assert window.page.wall.counts.text().startswith("4 failed"), "what went wrong is not what gives way"
    with qtbot.waitSignal(window.session.submit_failed) as refused:
        window.page.composer.send()
    assert "died" in refused.args[0]
    assert window.banner.action.text() == "Restart"
    window.banner.action.click()
    qtbot.waitUntil(lambda: window.session.ready, timeout=WAIT)
    assert not window.banner.isVisible()
    assert [view.text for view in bridge.requests.values()] == texts
    write(window, "Tell me a story about an owl.", 2)
    window.page.sampling.form["ignore_eos"].set(False)
    window.page.composer.send()
    qtbot.waitUntil(lambda: len(bridge.requests) == 2 and not bridge.busy, timeout=WAIT)


def test_closing_while_requests_run_writes_their_texts_and_leaves_no_process(qtbot: QtBot, ready: MainWindow) -> None:
    window, bridge = ready, ready.bridge
    write(window, "Tell me a story about a fox.", 8, 400)
    window.page.composer.send()
    qtbot.waitUntil(lambda: len(bridge.requests) == 8 and all(v.tokens for v in bridge.requests.values()), timeout=WAIT)
    pid, run = window.session.engine_pid, window.session.run_file
    assert pid is not None
    assert run is not None
    with qtbot.waitSignal(window.closed, timeout=WAIT):
        window.close()
        assert not window.isVisible(), "the window is gone at once; the rest is done behind it"
    assert not psutil.pid_exists(pid)
    views = load_trace(run).requests.values()
    assert len(views) == 8
    assert all(view.text and view.ended is not None for view in views)


def test_everything_that_can_be_used_has_a_name_and_can_be_reached_by_keyboard(
    qtbot: QtBot, window: MainWindow
) -> None:
    window.page.sampling.more.setChecked(True)
    window.page.composer.use_system.setChecked(True)
    kinds = (QPushButton, QComboBox, QSlider, QSpinBox, QLineEdit, QAbstractButton)
    for widget in (w for kind in kinds for w in window.findChildren(kind)):
        if isinstance(widget.parentWidget(), QSpinBox) or not widget.isVisibleTo(window):
            continue
        words = widget.accessibleName() or (widget.text() if isinstance(widget, QAbstractButton) else "")
        inner = widget.objectName().startswith("qt_") or not widget.objectName()
        assert words or inner, f"{widget.objectName()} has no name for a screen reader"
        if not inner:
            assert widget.focusPolicy() != Qt.FocusPolicy.NoFocus, f"{widget.objectName()} cannot have the focus"


def test_docks_close_come_back_and_keep_their_place(qtbot: QtBot, window: MainWindow, bridge: Bridge) -> None:
    page = window.page
    page.docks["live"].close()
    toggles = {a.text(): a for a in (dock.toggleViewAction() for dock in page.docks.values())}
    assert not toggles["Live"].isChecked()
    page.keep_layout()
    kept = MainWindow(Session(), bridge)
    kept.page.complete()
    assert kept.page.docks["live"].isHidden()
    with qtbot.waitSignal(kept.closed, timeout=WAIT):
        kept.close()
    kept.deleteLater()
    action(window, "Put all panels back").trigger()
    assert not page.docks["live"].isHidden()


def test_dialogs_open_and_change_what_they_say(qtbot: QtBot, window: MainWindow) -> None:
    Applied(window)
    action(window, "Settings …").trigger()
    dialog = window.findChild(QDialog, "settings_dialog")
    assert dialog is not None
    choice = dialog.findChild(QComboBox, "settings_theme")
    assert choice is not None
    choice.setCurrentIndex(choice.findData("light"))
    choice.activated.emit(choice.currentIndex())
    assert theme.current() is theme.LIGHT
    assert storage.settings().value("window/theme") == "light"
    dialog.accept()
    action(window, "Keyboard shortcuts").trigger()
    keys = window.findChild(QDialog, "shortcuts_dialog")
    assert keys is not None
    said = [label.text() for label in keys.findChildren(QLabel)]
    assert "F11" in said
    assert {name for key in TIMELINE_KEYS for name in (key.words, *key.keys)} <= set(said)
    keys.accept()
    action(window, "Larger").trigger()
    assert theme.zoom() == 1.1
    action(window, "Normal size").trigger()
    assert theme.zoom() == 1.0


def test_a_prompt_file_dropped_on_the_window_is_taken(qtbot: QtBot, window: MainWindow, tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    event = QDropEvent(
        QPointF(5, 5), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    window.dropEvent(event)
    assert window.page.composer.draft().total == 2


def test_the_window_can_be_drawn_at_every_size_and_in_both_themes(qtbot: QtBot, window: MainWindow) -> None:
    for name, scale in (("dark", 0.75), ("light", 2.0), ("dark", 2.0), ("light", 0.75)):
        theme.set_theme(name)
        theme.set_zoom(scale)
        window.resize(1000, 700)
        picture = window.grab().toImage()
        assert picture.pixelColor(2, picture.height() // 2).name() == theme.current().window.name()


@pytest.mark.parametrize("zoom", [1.0, 1.25, 1.5])
def test_a_small_screen_is_enough_and_no_tab_is_cut(qtbot: QtBot, window: MainWindow, zoom: float) -> None:
    theme.set_zoom(zoom)
    window.resize(1280, 720)
    for inside, tabs in ((False, 4), (True, 4), (False, 4)):
        window.page.see_inside(inside)
        for page in (COMPARE, PLAY):
            window.show_page(page)
            qtbot.wait(50)
            assert (window.width(), window.height()) == (1280, 720)
        send = window.page.composer.send_button
        assert window.rect().contains(QRect(send.mapTo(window, QPoint(0, 0)), send.size()))
        assert window.page.wall.height() > theme.px(60)
        bars = [bar for bar in window.page.area.findChildren(QTabBar) if bar.count() > 1 and bar.isVisible()]
        assert max(bar.count() for bar in bars) == tabs
        qtbot.waitUntil(lambda bars=bars: whole(bars))  # type: ignore[misc]


def folds_at_twice_the_size(qtbot: QtBot, window: MainWindow) -> None:
    window.show_page(COMPARE)
    assert window.compare is not None
    setup = window.compare.setup
    theme.set_zoom(2.0)
    window.resize(1280, 720)
    at_rest(qtbot, window)
    assert window.width() == 1280
    for part in (setup.workload, setup.rules_button, setup.race, setup.picker):
        assert setup.rect().contains(QRect(part.mapTo(setup, QPoint(0, 0)), part.size()))
    theme.set_zoom(1.0)
    qtbot.waitUntil(lambda: setup.race.mapTo(setup, QPoint(0, 0)).y() < setup.picker.y())


def test_a_zoom_in_the_moment_before_the_page_is_complete_is_taken(
    qtbot: QtBot, loop: asyncio.AbstractEventLoop, bridge: Bridge
) -> None:
    early = MainWindow(Session(), bridge)
    early.show()
    theme.set_zoom(1.5)
    early.page.complete()
    assert early.page.docks["setup"].width() >= theme.px(SETUP)
    with qtbot.waitSignal(early.closed, timeout=WAIT):
        early.close()
    early.deleteLater()


def test_zooming_on_another_page_leaves_the_columns_as_they_were(qtbot: QtBot, window: MainWindow) -> None:
    window.resize(1280, 720)
    qtbot.wait(50)
    setup = window.page.docks["setup"]
    before = setup.width()
    window.show_page(COMPARE)
    for zoom in (2.0, 1.0):
        theme.set_zoom(zoom)
        qtbot.wait(50)
        window.grab()  # which lays out pages that are not in front
    window.show_page(PLAY)
    qtbot.waitUntil(lambda: abs(setup.width() - before) <= 2)


def test_no_tab_and_no_choice_is_cut_at_a_projectors_size(qtbot: QtBot, window: MainWindow) -> None:
    window.resize(1280, 720)
    bars = [bar for bar in window.page.area.findChildren(QTabBar) if bar.count() > 1 and bar.isVisible()]
    assert sorted(bar.count() for bar in bars) == [4, 4, 4]
    window.show_page(COMPARE)
    assert window.compare is not None
    view = window.compare.replay.view
    window.show_page(PLAY)
    for zoom in (1.0, 1.25, 1.5, 1.0, 1.25):
        theme.set_zoom(zoom)
        qtbot.waitUntil(lambda: whole(bars))
        view.ensurePolished()
        room = view.sizeHint().width() - theme.px(24 + 8)
        assert view.fontMetrics().horizontalAdvance("Slots and streams") <= room


def test_seeing_inside_gives_way_to_zoom_and_comes_back(qtbot: QtBot, window: MainWindow) -> None:
    area, docks = window.page.area, window.page.docks
    window.resize(1280, 720)
    window.page.see_inside()
    qtbot.wait(50)

    def beside() -> bool:
        return docks["step"] not in area.tabifiedDockWidgets(docks["timeline"])

    assert beside()
    for zoom in (1.5, 2.0):
        theme.set_zoom(zoom)
        qtbot.wait(50)
        assert not beside()
        assert (window.width(), window.height()) == (1280, 720), zoom
        if zoom == 1.5:
            bars = [bar for bar in area.findChildren(QTabBar) if bar.count() > 1 and bar.isVisible()]
            qtbot.waitUntil(lambda bars=bars: whole(bars), timeout=5000)  # type: ignore[misc]
            status, brief = window.top_bar.status, "demo stories 5.5 M"
            window.top_bar.say(f"{brief}   ·   float32   ·   CPU")
            status.resize(status.fontMetrics().horizontalAdvance(f"{brief}   ·   float32"), status.height())
            assert status.text() == f"{brief}   ·   float32"
            status.resize(status.fontMetrics().horizontalAdvance(f"{brief}   ·"), status.height())
            assert status.text() == brief, "a fact has its place whole or not at all"
    theme.set_zoom(1.5)
    qtbot.wait(50)
    window.top_bar.say("demo stories 5.5 M   ·   float32")
    assert window.top_bar.status.text().startswith("demo stories"), "the brand gives way to what is loaded"
    theme.set_zoom(1.0)
    qtbot.wait(50)
    assert beside()
    assert set(area.tabifiedDockWidgets(docks["timeline"])) == {docks["requests"], docks["transcript"]}
    assert (window.width(), window.height()) == (1280, 720)
    window.page.see_inside(False)
    theme.set_zoom(1.5)
    theme.set_zoom(1.0)
    qtbot.wait(50)
    assert not beside(), "what was a tab before stays one"


def whole(bars: list[QTabBar]) -> bool:
    return all(bar.width() >= bar.sizeHint().width() for bar in bars)


def test_tabs_without_room_are_reached_by_arrows_that_can_be_seen(qtbot: QtBot, window: MainWindow) -> None:
    bar = QTabBar()
    qtbot.addWidget(bar)
    for name in ("Timeline", "Requests", "Transcript"):
        bar.addTab(name)
    bar.resize(120, bar.sizeHint().height())
    bar.show()
    arrows = [arrow for arrow in bar.findChildren(QToolButton) if arrow.isVisible()]
    assert len(arrows) == 2
    for arrow in arrows:
        picture = arrow.grab().toImage()
        colors = {picture.pixelColor(x, y).name() for x in range(picture.width()) for y in range(picture.height())}
        assert len(colors) > 1


def test_an_answer_can_be_read_on_a_small_screen(qtbot: QtBot, ready: MainWindow) -> None:
    ready.resize(1280, 720)
    write(ready, "Tell me a story of a fox and a kite.", 1, max_tokens=400)
    ready.page.sampling.form["ignore_eos"].set(True)
    ready.page.composer.send()
    qtbot.waitUntil(lambda: len(ready.bridge.requests) == 1 and not ready.bridge.busy, timeout=WAIT)
    for zoom, lines in ((1.0, 6), (1.25, 3), (1.5, 3)):
        theme.set_zoom(zoom)
        ready.resize(1280, 720)
        for inside in (False, True):
            ready.page.see_inside(inside)
            ready.page.wall.cards.request_opened.emit(0)
            at_rest(qtbot, ready)
            assert (ready.width(), ready.height()) == (1280, 720)
            ready.page.transcript._rewrite()
            text = ready.page.transcript.text
            first, last = (text.cursorForPosition(QPoint(4, y)) for y in (4, text.viewport().height() - 4))
            assert first.position() >= text._base, "what was asked is above it"
            assert last.position() < text.document().characterCount() - 1, "there is more of it"
            assert text.viewport().height() // text.fontMetrics().lineSpacing() >= lines


def test_no_model_is_loaded_before_the_window_is_complete(qtbot: QtBot, window: MainWindow) -> None:
    window.start(ModelSpec("/nowhere/at/all"), EngineConfig())
    assert window.session.state is SessionState.EMPTY
    qtbot.waitUntil(lambda: "No folder" in window.page.model.error.text(), timeout=WAIT)


def test_pages_change_by_key_and_tab_and_the_last_is_shown_again(
    qtbot: QtBot, window: MainWindow, bridge: Bridge
) -> None:
    assert window.compare is None, "the Compare page is built when it is asked for"
    action(window, "Compare page").trigger()
    assert window.compare is not None
    assert window.compare.isVisible()
    assert window.top_bar.pages.checkedId() == COMPARE
    find(window, QPushButton, "page_play").click()  # type: ignore[attr-defined]
    assert window.page.isVisible()
    find(window, QPushButton, "page_compare").click()  # type: ignore[attr-defined]
    again = MainWindow(Session(), bridge)
    again.start(ModelSpec("/nowhere/at/all"), EngineConfig())
    qtbot.waitUntil(lambda: again.pages.currentIndex() == COMPARE)
    with qtbot.waitSignal(again.closed, timeout=WAIT):
        again.close()
    again.deleteLater()
