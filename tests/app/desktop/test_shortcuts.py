"""The page of keys tells every key there is, and a question mark opens it but where text is written."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QDialog, QWidget
from pytestqt.qtbot import QtBot

from app.desktop.shortcuts import ShortcutsDialog
from app.inside.timeline.selection import KEYS
from app.window.main_window import MainWindow


def test_every_key_of_every_page_is_told_and_found(qtbot: QtBot, window: MainWindow) -> None:
    window.page.setFocus()
    qtbot.keyClick(window.page, "?")
    dialog = window.findChild(ShortcutsDialog)
    assert dialog is not None
    told = {shortcut.words: shortcut.keys for shortcut in dialog.shown()}
    actions = [action for page in window.pages.all_built() for action in page.actions()]
    assert len(window.pages.all_built()) == window.pages.count()
    for action in (*window.commands, *actions):
        for key in action.shortcuts():
            if not key.isEmpty():
                assert key.toString(QKeySequence.SequenceFormat.NativeText) in told[action.text()]
    assert all(told[key.words] == key.keys for key in KEYS)
    of_window = {key.toString() for action in window.actions() for key in action.shortcuts()}
    for page in window.pages.all_built():
        keys = {key.toString() for action in page.actions() for key in action.shortcuts() if not key.isEmpty()}
        assert not keys & of_window, "two that hear one key both hear nothing"
    dialog.search.setText("full f11")
    assert [shortcut.words for shortcut in dialog.shown()] == ["Full screen"]
    dialog.search.setText("ctrl+shift+n")
    assert [shortcut.words for shortcut in dialog.shown()] == ["New session"]
    dialog.search.setText("no such key")
    assert not dialog.shown()
    assert "no such key" in dialog.empty.text()
    dialog.accept()


def test_a_question_mark_in_a_text_is_a_letter(qtbot: QtBot, window: MainWindow) -> None:
    prompt = window.page.composer.prompt
    prompt.setFocus()
    prompt.setPlainText("")
    qtbot.keyClicks(prompt, "why?")
    assert prompt.toPlainText() == "why?"
    assert window.findChild(QDialog, "shortcuts_dialog") is None


def test_no_two_actions_of_one_place_have_the_same_key(window: MainWindow) -> None:
    for group in window.window_actions.key_groups():
        keys = [key for shortcut in group.shortcuts for key in shortcut.keys]
        assert len(keys) == len(set(keys)), group.title


def test_a_window_of_a_lost_screen_comes_back_and_the_layout_is_reset_with_undo(
    qtbot: QtBot, window: MainWindow
) -> None:
    room = window.screen().availableGeometry()
    window.setGeometry(room.right() + 4000, room.bottom() + 3000, 900, 600)
    window.layout_kept.keep()
    window.layout_kept.restore()
    seen = window.geometry() & room
    assert seen.width() >= 80
    assert seen.height() >= 80
    window.setGeometry(10, 20, 780, 600)
    window.page.docks["live"].close()
    before = window.width(), window.height()
    (reset,) = [a for a in window.commands if a.text().startswith("Put the window and its panels back")]
    reset.trigger()
    assert (window.width(), window.height()) != before
    assert not window.page.docks["live"].isHidden()
    assert window.banner.title.text() == "The layout was reset"
    window.banner.action.click()
    assert (window.width(), window.height()) == before
    assert window.page.docks["live"].isHidden()


def test_whatever_can_have_the_focus_has_a_name(qtbot: QtBot, window: MainWindow) -> None:
    hosts: list[tuple[QWidget, int]] = [(window, page) for page in range(window.pages.count())]
    window.window_actions.show_settings()
    hosts += [(dialog, 0) for dialog in window.findChildren(QDialog)]
    nameless = set()
    for host, page in hosts:
        window.show_page(page)
        for widget in host.findChildren(QWidget):
            reached = widget.focusPolicy() & Qt.FocusPolicy.TabFocus and widget.isVisibleTo(host)
            if not reached or widget.focusProxy() is not None:
                continue
            inner = not widget.objectName() or widget.objectName().startswith("qt_")
            said = widget.accessibleName() or getattr(widget, "text", lambda: "")()
            if not (said or inner):
                nameless.add(f"{type(widget).__name__} {widget.objectName()} of {host.objectName()}")
    assert not nameless, "these have no name for a screen reader"
    for dialog in window.findChildren(QDialog):
        dialog.close()
