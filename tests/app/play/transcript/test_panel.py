import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QGuiApplication, QTextCursor
from pytestqt.qtbot import QtBot

from app.play.transcript.panel import Transcript
from app.playback.bridge import Bridge
from engine.trace import FinishReason, RequestView


class Done:
    """A task that is over."""

    def __init__(self, result: list[int]) -> None:
        self._result = result

    def add_done_callback(self, call: Any) -> None:
        future: asyncio.Future[list[int]] = asyncio.Future(loop=asyncio.new_event_loop())
        future.set_result(self._result)
        call(future)
        future.get_loop().close()


class Listener(QObject):
    """Stands where the session does, and notes what is asked of it."""

    state_changed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.ready = True
        self.asked: list[tuple[Any, ...]] = []

    def stop(self, requests: Iterable[int]) -> None:
        self.asked.append(("stop", list(requests)))

    def regenerate(self, view: RequestView) -> Done:
        self.asked.append(("regenerate", view.request))
        return Done([8])

    def continue_chat(self, view: RequestView, text: str) -> Done:
        self.asked.append(("continue", view.request, text))
        return Done([9])


@pytest.fixture
def session() -> Listener:
    return Listener()


@pytest.fixture
def transcript(qtbot: QtBot, bridge: Bridge, session: Listener) -> Transcript:
    transcript = Transcript(bridge, session)  # type: ignore[arg-type]
    qtbot.addWidget(transcript)
    transcript.resize(420, 300)
    transcript.show()
    qtbot.waitExposed(transcript)
    return transcript


def test_it_says_what_to_do_when_nothing_is_selected(transcript) -> None:
    assert transcript._pages.currentIndex() == 0


def test_prompt_and_answer_are_there_whole_and_grow(tell, story, transcript) -> None:
    tell([story.submitted(1, text="About a fox"), story.step({1: "Once"})])
    transcript.select(1)
    assert transcript.text.toPlainText().split() == ["You", "About", "a", "fox", "Answer", "Once"]
    tell([story.step({1: " upon"}), story.step({1: " a time"})])
    assert transcript.text.toPlainText().endswith("Once upon a time")
    assert "3 of 100 out" in transcript.numbers.text().replace("\N{NO-BREAK SPACE}", " ")


def test_a_selection_and_the_place_read_stay_while_text_comes(tell, story, transcript) -> None:
    tell([story.submitted(1)] + [story.step({1: f"line {i}\n"}) for i in range(100)])
    transcript.select(1)
    bar = transcript.text.verticalScrollBar()
    bar.setValue(3)
    cursor = transcript.text.textCursor()
    cursor.movePosition(QTextCursor.MoveOperation.Start)
    cursor.movePosition(QTextCursor.MoveOperation.EndOfBlock, QTextCursor.MoveMode.KeepAnchor)
    transcript.text.setTextCursor(cursor)
    bar.setValue(3)
    tell([story.step({1: "more\n"})])
    assert transcript.text.textCursor().selectedText() == "You"
    assert bar.value() == 3
    bar.setValue(bar.maximum())
    tell([story.step({1: f"more {i}\n"}) for i in range(20)])
    assert bar.value() == bar.maximum()


def test_an_answer_that_is_opened_while_it_comes_is_followed_below_a_long_talk(tell, story, transcript) -> None:
    tell([story.submitted(1, text="a long talk\n" * 100), story.step({1: "Once"})])
    transcript.select(1)
    bar = transcript.text.verticalScrollBar()
    assert bar.value() == bar.maximum() > 0
    tell([story.step({1: f"more {i}\n"}) for i in range(20)])
    assert bar.value() == bar.maximum()


def test_a_follow_up_waits_for_the_end_and_goes_to_the_session(qtbot, tell, story, transcript, session) -> None:
    tell([story.submitted(1), story.step({1: "Once"})])
    transcript.select(1)
    assert not transcript.follow_up.isEnabled()
    tell([story.ended(1)])
    assert transcript.follow_up.isEnabled()
    assert not transcript.send_button.isEnabled()
    qtbot.keyClicks(transcript.follow_up, "And then?")
    with qtbot.waitSignal(transcript.request_created) as heard:
        qtbot.keyClick(transcript.follow_up, Qt.Key.Key_Return)
    assert session.asked == [("continue", 1, "And then?")]
    assert heard.args == [9]
    assert transcript.follow_up.text() == ""


def test_buttons_stop_copy_and_ask_again(qtbot, tell, story, transcript, session) -> None:
    tell([story.submitted(1), story.step({1: "Once"})])
    transcript.select(1)
    for button in (transcript.stop_button, transcript.again_button, transcript.copy_button):
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert session.asked == [("stop", [1]), ("regenerate", 1)]
    assert QGuiApplication.clipboard().text() == "Once"
    tell([story.ended(1)])
    assert not transcript.stop_button.isEnabled()


def test_an_error_keeps_the_text_and_says_why(tell, story, transcript) -> None:
    tell([story.submitted(1), story.step({1: "Once"}), story.ended(1, FinishReason.ERROR, "NaN in the logits")])
    transcript.select(1)
    assert transcript.error.text() == "NaN in the logits"
    assert transcript.text.toPlainText().endswith("Once")


def test_without_a_model_nothing_can_be_asked(tell, story, transcript, session) -> None:
    tell([story.submitted(1), story.step({1: "Once"}), story.ended(1)])
    transcript.select(1)
    session.ready = False
    session.state_changed.emit(None)
    assert not any(w.isEnabled() for w in (transcript.follow_up, transcript.send_button, transcript.again_button))
    assert transcript.copy_button.isEnabled()


def test_a_request_that_is_not_there_yet_is_shown_when_it_comes(tell, story, transcript) -> None:
    tell([story.submitted(1)])
    transcript.select(2)
    assert transcript.request is None
    tell([story.submitted(2, text="About an owl")])
    assert transcript.request == 2
    assert "About an owl" in transcript.text.toPlainText()


def test_what_came_while_hidden_is_there_when_shown(tell, story, transcript) -> None:
    tell([story.submitted(1), story.step({1: "Once"})])
    transcript.select(1)
    transcript.hide()
    tell([story.step({1: " upon"})])
    transcript.show()
    assert transcript.text.toPlainText().endswith("Once upon")
