"""Ctrl+Z takes back what was lost on any page, and Ctrl+Shift+Z loses it again."""

from pathlib import Path

from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.compare.page import ComparePage
from app.models.page import ModelsPage
from app.ui.undo import UndoStack
from app.window.main_window import COMPARE, MODELS, MainWindow
from engine import InvalidInput, ModelSpec, Trace
from tests.app.conftest import LOAD_MS


def keys(qtbot: QtBot, window: MainWindow, *, again: bool = False) -> None:
    """Where no text field has the focus."""
    window.activateWindow()
    window.pages.current.setFocus()
    modifiers = Qt.KeyboardModifier.ControlModifier | (
        Qt.KeyboardModifier.ShiftModifier if again else Qt.KeyboardModifier.NoModifier
    )
    qtbot.keyClick(window, Qt.Key.Key_Z, modifiers)


def test_a_file_in_place_of_what_was_written(qtbot: QtBot, window: MainWindow, tmp_path: Path) -> None:
    composer = window.page.composer
    composer.prompt.setPlainText("A {fox|owl}")
    composer.count.setValue(7)
    (tmp_path / "mine.txt").write_text("one\ntwo\n")
    composer.open_file(tmp_path / "mine.txt")
    assert (len(composer.draft().file), composer.count.value()) == (2, 1)
    assert window.undo.actions[0].text() == "Undo: took prompts from mine.txt"
    keys(qtbot, window)
    assert (composer.draft().file, composer.count.value()) == ((), 7)
    assert composer.prompt.isEnabled()
    keys(qtbot, window, again=True)
    assert len(composer.draft().file) == 2
    composer.drop_file.click()
    assert composer.draft().file == ()
    keys(qtbot, window)
    assert (len(composer.draft().file), composer.file_name) == (2, "mine.txt")


def test_a_compressed_prompt_in_place_of_a_long_one(qtbot: QtBot, window: MainWindow) -> None:
    composer = window.page.composer
    composer.prompt.setPlainText("a long one\nof two lines")
    composer.each_line.setChecked(True)
    composer.use("short")
    assert composer.prompt.toPlainText() == "short"
    keys(qtbot, window)
    assert composer.prompt.toPlainText() == "a long one\nof two lines"
    assert composer.each_line.isChecked()
    composer.prompt.setFocus()
    composer.prompt.selectAll()
    qtbot.keyClicks(composer.prompt, "typed")
    qtbot.keyClick(composer.prompt, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert "typed" not in composer.prompt.toPlainText(), "a text field has its own"
    assert window.undo.canRedo(), "and leaves the window's as it is"


def test_a_lane_that_was_removed_and_another_workload(qtbot: QtBot, window: MainWindow) -> None:
    window.show_page(COMPARE)
    page = window.pages.current
    assert isinstance(page, ComparePage)
    setup, before = page.setup, page.setup.choice
    setup.picker.set_lanes(before.lanes[:-1])
    setup.picker.lanes_changed.emit()
    assert len(setup.choice.lanes) == len(before.lanes) - 1
    assert window.undo.actions[0].text() == "Undo: removed a lane"
    keys(qtbot, window)
    assert setup.choice == before
    assert setup.picker.lanes == before.lanes
    setup.workload.setCurrentIndex((setup.workload.currentIndex() + 1) % 3)
    setup.workload.activated.emit(setup.workload.currentIndex())
    assert setup.choice.workload != before.workload
    keys(qtbot, window)
    assert setup.choice == before
    assert setup.workload.currentData() == before.workload


def test_panels_that_were_put_back(qtbot: QtBot, window: MainWindow) -> None:
    page = window.page
    page.docks["live"].hide()
    window.reset_action.trigger()
    assert not page.docks["live"].isHidden()
    keys(qtbot, window)
    assert page.docks["live"].isHidden()
    keys(qtbot, window, again=True)
    assert not page.docks["live"].isHidden()


def test_models_that_were_taken_off_the_list(qtbot: QtBot, window: MainWindow) -> None:
    window.recents.add(ModelSpec("some/model"))
    window.show_page(MODELS)
    page = window.pages.current
    assert isinstance(page, ModelsPage)
    page.list.clear_asked.emit()
    assert window.recents.entries == []
    keys(qtbot, window)
    assert [recent.spec.source for recent in window.recents.entries] == ["some/model"]


def test_a_session_that_was_ended_by_a_new_one(qtbot: QtBot, ready: MainWindow) -> None:
    window, composer = ready, ready.page.composer
    composer.prompt.setPlainText("Tell me a story")
    composer.count.setValue(1)
    composer.send()
    qtbot.waitUntil(lambda: bool(window.bridge.requests) and not window.bridge.busy, timeout=LOAD_MS)
    texts = {request: view.text for request, view in window.bridge.requests.items()}
    window.new_action.trigger()
    qtbot.waitUntil(lambda: window.undo.canUndo() and not window.bridge.requests, timeout=LOAD_MS)
    keys(qtbot, window)
    qtbot.waitUntil(lambda: bool(window.bridge.requests), timeout=LOAD_MS)
    qtbot.waitUntil(lambda: {r: v.text for r, v in window.bridge.requests.items()} == texts, timeout=LOAD_MS)
    keys(qtbot, window, again=True)
    assert window.runs.path is None
    assert not window.bridge.requests


def test_what_cannot_be_taken_back_says_why_and_is_forgotten(window: MainWindow) -> None:
    stack: UndoStack = window.undo

    def refused() -> None:
        raise InvalidInput("the file is gone")

    stack.did("did something", refused, Trace)
    stack.actions[0].trigger()
    assert window.banner.text.text() == "The file is gone"
    assert not stack.canUndo()
    assert not stack.canRedo()


def test_a_banner_takes_back_what_it_told_of_and_nothing_else(window: MainWindow) -> None:
    done: list[str] = []
    words, first = window.undo.did("one", lambda: done.append("one back"), Trace)
    window.undo.did("two", lambda: done.append("two back"), Trace)
    assert words == "Undo"
    first()
    assert done == [], "two was done since"
    window.undo.undo()
    first()
    assert done == ["two back", "one back"]
