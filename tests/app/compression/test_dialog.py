"""The dialog over a real engine: what is struck out, what that buys, and the prompt that is used."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.compression.dialog import CompressionDialog
from app.compression.session import BUSY_WORDS
from app.session.session import Session
from app.ui.look import theme
from app.window.main_window import MainWindow
from engine.config import Prompt

WAIT = 30_000
STORY = "Once upon a time there was a brave fox. One day the fox found a golden violin.\n\nTell me a story about a fox."
CHAT: Prompt = [{"role": "user", "content": STORY}]
TOLD: Prompt = [{"role": "system", "content": "You tell short stories."}, {"role": "user", "content": "A fox, please."}]

Opened = Callable[[Prompt], CompressionDialog]


@pytest.fixture
def opened(qtbot: QtBot, loaded: Session) -> Iterator[Opened]:
    window, dialogs = QWidget(), list[CompressionDialog]()
    qtbot.addWidget(window)
    window.resize(1280, 720)
    window.show()

    def open_(prompt: Prompt) -> CompressionDialog:
        dialog = CompressionDialog(window, loaded, prompt)
        dialog.open()
        dialogs.append(dialog)
        settled(qtbot, dialog)
        return dialog

    yield open_
    for dialog in filter(isValid, dialogs):
        settled(qtbot, dialog)
        dialog.accept()


def settled(qtbot: QtBot, dialog: CompressionDialog) -> None:
    qtbot.waitUntil(lambda: not dialog.work.running, timeout=WAIT)


def asked(session: Session) -> int:
    assert session.trace is not None
    return len(session.trace.requests)


def test_the_slider_strikes_words_out_and_asks_no_model(loaded: Session, opened: Opened) -> None:
    dialog = opened(CHAT)
    assert dialog.work.scored is not None
    before, half = asked(loaded), list(dialog.original.struck)
    assert dialog.original.toPlainText() == STORY
    assert 0 < len(half) < len(STORY.split())
    assert dialog.compressed.toPlainText().endswith("\n\nTell me a story about a fox.")
    dialog.ratio.set_value(0.25)
    assert set(half) <= set(dialog.original.struck)
    assert len(dialog.original.struck) > len(half)
    assert dialog.prompt == dialog.work.scored.compressed(0.25)
    dialog.ratio.set_value(1.0)
    assert not dialog.original.struck
    assert dialog.compressed.toPlainText() == STORY
    assert asked(loaded) == before


def test_what_is_struck_through_says_why(opened: Opened) -> None:
    dialog = opened(CHAT)
    text, word = dialog.original, dialog.original.struck[0]
    at = text.toPlainText().index(word)
    cursor = QTextCursor(text.document())
    cursor.setPosition(at + 1)
    assert cursor.charFormat().fontStrikeOut()
    assert text.tip(at + 1).startswith(f"“{word}”: ")
    assert "bits" in text.tip(at + 1)
    assert text.tip(len(STORY) - 2) == "Kept whole"
    theme.set_theme("light")
    cursor = QTextCursor(text.document())
    cursor.setPosition(at + 1)
    assert cursor.charFormat().fontStrikeOut()
    assert cursor.charFormat().foreground().color() == theme.current().secondary


def test_it_is_measured_and_the_figures_are_of_what_is_shown(qtbot: QtBot, loaded: Session, opened: Opened) -> None:
    dialog = opened(CHAT)
    assert not dialog.effect.isVisible()
    qtbot.mouseClick(dialog.measure, Qt.MouseButton.LeftButton)
    assert dialog.progress.isVisible()
    settled(qtbot, dialog)
    effect = dialog.work.effect
    assert effect is not None
    rows = dialog.table.facts_model.facts.rows
    assert rows[0][:3] == ("prompt tokens", f"{effect.before.tokens}", f"{effect.after.tokens}")
    assert dialog.answers.before.toPlainText().replace("▸", "") == effect.before.text
    assert dialog.answers.after.toPlainText().replace("▸", "") == effect.after.text
    assert "lower bound" in dialog.note.text()
    dialog.ratio.set_value(0.25)
    assert not dialog.effect.isVisible()
    dialog.ratio.set_value(0.5)
    assert dialog.effect.isVisible()


def test_nothing_is_measured_beside_other_requests(
    opened: Opened, loaded: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialog, before = opened(CHAT), asked(loaded)
    monkeypatch.setattr(Session, "busy", property(lambda _: True))
    dialog.measure.click()
    assert dialog.error.text() == BUSY_WORDS
    assert asked(loaded) == before


def test_what_leaves_nothing_to_strike_out_says_so(qtbot: QtBot, opened: Opened) -> None:
    dialog = opened(TOLD)
    assert "nothing is left to compress; keep less" in dialog.error.text()
    assert not dialog.use.isEnabled()
    assert not dialog.measure.isEnabled()
    dialog.keep.setCurrentIndex(dialog.keep.findText("question"))
    settled(qtbot, dialog)
    assert not dialog.error.text()
    assert dialog.original.toPlainText() == "system\nYou tell short stories.\n\nuser\nA fox, please."
    prompt: Any = dialog.prompt
    assert prompt[1] == TOLD[1]
    assert len(prompt[0]["content"]) < len("You tell short stories.")


def test_the_model_writes_a_summary_or_fills_in_fields(qtbot: QtBot, opened: Opened) -> None:
    dialog = opened(CHAT)
    dialog.method.setCurrentIndex(dialog.method.findData("summary"))
    assert not dialog.use.isEnabled()
    dialog.write.click()
    settled(qtbot, dialog)
    written = dialog.work.written
    assert written is not None
    assert dialog.compressed.toPlainText() == f"{written.text}\n\nTell me a story about a fox."
    dialog.ratio.set_value(0.2)
    assert dialog.prompt is None  # the summary was as long as another ratio allows
    pytest.importorskip("llguidance")
    dialog.method.setCurrentIndex(dialog.method.findData("fields"))
    assert dialog.fields.isVisible()
    assert not dialog.ratio.isVisible()
    dialog.write.click()
    settled(qtbot, dialog)
    assert "fields=['']: give names" in dialog.error.text()
    dialog.fields.setText("hero, place")
    dialog.write.click()
    settled(qtbot, dialog)
    assert dialog.compressed.toPlainText().startswith('{"hero": "')


def test_it_is_used(qtbot: QtBot, opened: Opened) -> None:
    dialog = opened(CHAT)
    wanted = dialog.prompt
    with qtbot.waitSignal(dialog.use_asked) as told:
        dialog.use.click()
    assert told.args == [wanted]


def test_close_is_cancel_while_it_works(qtbot: QtBot, opened: Opened) -> None:
    dialog = opened(CHAT)
    dialog.measure.click()
    assert dialog.leave.text() == "Cancel"
    dialog.leave.click()
    settled(qtbot, dialog)
    assert dialog.work.effect is None
    assert dialog.isVisible()
    assert dialog.leave.text() == "Close"


def test_the_composer_opens_it_and_says_what_it_needs(qtbot: QtBot, window: MainWindow) -> None:
    window.page.composer.compress.click()
    dialog = window.findChild(CompressionDialog)
    assert isinstance(dialog, CompressionDialog)
    assert dialog.error.text() == "Load a model first."
    assert not dialog.measure.isEnabled()
    assert any(action.text() == "Compress the prompt …" for action in window.commands)
    dialog.reject()


@pytest.mark.parametrize("zoom", [1.0, 1.5, 2.0])
def test_all_of_it_is_in_sight_on_a_projector(qtbot: QtBot, opened: Opened, zoom: float) -> None:
    """At 1280 × 720 nothing is cut at the sides; what is below can be scrolled to."""
    theme.set_zoom(zoom)
    dialog = opened(CHAT)
    dialog.measure.click()
    settled(qtbot, dialog)
    assert dialog.width() <= 1280
    qtbot.waitUntil(lambda: dialog.body.sheet.minimumSizeHint().width() <= dialog.body.viewport().width())
