"""The Chat page in the real window: its keys, and the way from an answer to its request on the Play page."""

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chat.page import ChatPage
from app.window.main_window import CHAT, PLAY, MainWindow
from engine import EngineConfig

WAIT = 30_000


def test_see_inside_shows_the_request_on_the_play_page(qtbot: QtBot, ready: MainWindow) -> None:
    ready.show_page(CHAT)
    page = ready.pages.current
    assert isinstance(page, ChatPage)
    QTest.keyClicks(page.composer.edit, "Tell me a story about a fox.")
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not page.talk.busy and page.branches is not None, timeout=WAIT)
    assert page.branches is not None
    answer = page.branches.path(0)[-1]
    view = page.columns.views[0].view(answer)
    assert view is not None
    view.deeds.buttons["inside"].click()
    assert ready.pages.currentIndex() == PLAY
    qtbot.waitUntil(lambda: ready.page.transcript.request == answer.facts.request, timeout=WAIT)
    shown = ready.page.transcript.view
    assert shown is not None
    qtbot.waitUntil(lambda: shown.text == answer.text, timeout=WAIT)

    # the same once the engine has begun another trace: then it is a saved run
    beginning = ready.session.start(ready.session.begin(EngineConfig(max_running=4)))
    qtbot.waitUntil(beginning.done, timeout=WAIT)
    ready.show_page(CHAT)
    view.deeds.buttons["inside"].click()
    qtbot.waitUntil(lambda: ready.runs.path is not None, timeout=WAIT)
    qtbot.waitUntil(lambda: ready.page.transcript.request == answer.facts.request, timeout=WAIT)
    ready.runs.close()


def test_the_page_is_reached_by_its_key_and_lists_its_actions(qtbot: QtBot, window: MainWindow) -> None:
    window.show_page(CHAT)
    assert isinstance(window.pages.current, ChatPage)
    assert {"Chat page", "New conversation", "Search conversations", "Chat presets …"} <= {
        action.text() for action in window.commands
    }
