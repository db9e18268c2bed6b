from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, Qt, QUrl
from pytestqt.qtbot import QtBot

from app.play.composer import DEFAULT_COUNT, DEFAULT_PROMPT, Composer
from app.play.prompts import guessed
from app.playback.bridge import Bridge
from app.session.session import Session, SessionState
from app.ui.look import theme
from app.window.main_window import MainWindow
from engine import SamplingParams, Submission
from engine.workloads import Arrival, counter_for

WAIT = 60_000


class Sent:
    """Notes what the composer hands to the session."""

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.submissions: list[Submission] = []
        monkeypatch.setattr(session, "send", self.submissions.extend)


@pytest.fixture
def sent(session: Session, monkeypatch: pytest.MonkeyPatch) -> Sent:
    return Sent(session, monkeypatch)


@pytest.fixture
def composer(qtbot: QtBot, session: Session, bridge: Bridge) -> Composer:
    composer = Composer(session, bridge, SamplingParams)
    qtbot.addWidget(composer)
    composer.show()
    return composer


def test_it_opens_with_a_template_of_sixteen_stories(qtbot: QtBot, composer: Composer) -> None:
    assert composer.prompt.toPlainText() == DEFAULT_PROMPT
    assert composer.count.value() == DEFAULT_COUNT
    assert composer.summary.accessibleName().startswith("16 different prompts · about ")


def test_the_summary_follows_what_is_typed(qtbot: QtBot, composer: Composer) -> None:
    composer.prompt.setPlainText("a {fox|owl}")
    composer.count.setValue(2)
    qtbot.waitUntil(lambda: composer.summary.accessibleName().startswith("2 different prompts"))


def test_the_same_text_has_the_same_tokens_before_and_after_it_was_sent(qtbot: QtBot, ready: MainWindow) -> None:
    """They are counted with the model's own tokenizer."""
    composer, bridge = ready.page.composer, ready.bridge
    composer.prompt.setPlainText("The extraordinary hippopotamus {sings|swims}.")
    composer.count.setValue(1)
    counted = round(counter_for("demo").count("The extraordinary hippopotamus sings."))
    assert counted != round(guessed("The extraordinary hippopotamus sings."))
    words = f"about {counted} tokens"
    qtbot.waitUntil(lambda: composer.summary.accessibleName() == words, timeout=WAIT)
    composer.send()
    qtbot.waitUntil(lambda: len(bridge.requests) == 1 and not bridge.busy, timeout=WAIT)
    qtbot.wait(100)
    assert composer.summary.accessibleName() == words


def test_a_mistake_is_told_without_moving_anything(qtbot: QtBot, window: MainWindow) -> None:
    composer = window.page.composer
    window.resize(1280, 720)
    composer.prompt.setPlainText("  ")
    qtbot.wait(50)
    before = composer.sizeHint(), composer.field.geometry(), composer.prompt.geometry()
    composer.send()
    qtbot.wait(50)
    assert composer.message.isVisible()
    assert (composer.sizeHint(), composer.field.geometry(), composer.prompt.geometry()) == before


def test_a_long_mistake_is_told_whole(qtbot: QtBot, window: MainWindow) -> None:
    composer = window.page.composer
    window.resize(1280, 720)
    qtbot.wait(50)
    why = "prompt of 15 tokens with max_tokens=200: the whole KV pool holds 192 tokens; lower max_tokens, or "
    composer._complain(why + "give the pool more memory")
    qtbot.wait(50)
    assert composer.long_message.isVisible()
    assert not composer.message.isVisible()
    assert composer.summary.isVisible()
    shown = composer.long_message
    wanted = shown.heightForWidth(shown.width())
    assert shown.height() >= wanted
    composer.prompt.setPlainText("Tell me a story.")
    assert not composer.long_message.isVisible()


def test_it_says_that_a_files_prompts_are_sent_and_the_text_is_not(qtbot: QtBot, composer: Composer) -> None:
    composer.take("mine.txt", [Arrival(0.0, "one"), Arrival(0.0, "two")])
    words = "Sends the file's prompts, not the text: 2 different prompts"
    qtbot.waitUntil(lambda: composer.summary.accessibleName().startswith(words))


def test_sending_takes_the_text_and_leaves_it(qtbot: QtBot, composer: Composer, sent: Sent) -> None:
    composer.prompt.setPlainText("hello {a|b}")
    composer.count.setValue(2)
    composer.send()
    assert sorted(s.prompt[0]["content"] for s in sent.submissions) == ["hello a", "hello b"]  # type: ignore[index]
    assert composer.prompt.toPlainText() == "hello {a|b}"


def complains(composer: Composer) -> bool:
    return composer.message.isVisible() or composer.long_message.isVisible()


def test_an_empty_prompt_is_told_below_the_text_until_it_is_edited(
    qtbot: QtBot, composer: Composer, sent: Sent
) -> None:
    composer.prompt.setPlainText("  ")
    composer.send()
    assert not sent.submissions
    assert complains(composer)
    assert "write a prompt first" in composer.message.accessibleName()
    composer.prompt.setPlainText("hello")
    assert not complains(composer)


def test_a_refusal_of_the_engine_is_told_with_the_text_kept(qtbot: QtBot, composer: Composer, session: Session) -> None:
    session.submit_failed.emit("prompt: 9,000 tokens are more than the context of 512")
    assert "9,000 tokens" in composer.message.accessibleName()
    assert composer.prompt.toPlainText() == DEFAULT_PROMPT


def test_the_system_prompt_shows_and_counts_only_when_on(qtbot: QtBot, composer: Composer, sent: Sent) -> None:
    composer.system.setPlainText("be kind")
    assert not composer.system.isVisible()
    composer.use_system.click()
    assert composer.system.isVisible()
    composer.count.setValue(1)
    composer.send()
    composer.use_system.click()
    composer.send()
    assert [len(s.prompt) for s in sent.submissions] == [2, 1]


def test_raw_prompts_are_texts(qtbot: QtBot, composer: Composer, sent: Sent) -> None:
    composer.chat.setChecked(False)
    composer.count.setValue(1)
    composer.prompt.setPlainText("Once")
    composer.send()
    assert sent.submissions[0].prompt == "Once"


def test_a_file_of_prompts_takes_the_place_of_the_text_and_gives_it_back(
    qtbot: QtBot, composer: Composer, sent: Sent, tmp_path: Path
) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    composer.open_file(path)
    assert composer.drop_file.isVisible()
    assert not composer.prompt.isEnabled()
    composer.send()
    assert [s.prompt[0]["content"] for s in sent.submissions] == ["one", "two"]  # type: ignore[index]
    composer.drop_file.click()
    assert composer.prompt.isEnabled()
    assert composer.draft().text == DEFAULT_PROMPT


def test_a_file_of_json_lines_is_sent_as_what_it_says(
    qtbot: QtBot, composer: Composer, sent: Sent, tmp_path: Path
) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text('{"prompt": "one", "max_tokens": 7}\n{"text": "two"}\n', encoding="utf-8")
    composer.open_file(path)
    composer.send()
    assert [s.prompt for s in sent.submissions] == [[{"role": "user", "content": "one"}], "two"]
    assert sent.submissions[0].params.max_tokens == 7


def test_a_click_anywhere_in_the_field_is_one_into_the_prompt(qtbot: QtBot, composer: Composer) -> None:
    composer.count.setFocus()
    field = composer.field
    qtbot.mouseClick(field, Qt.MouseButton.LeftButton, pos=QPoint(field.width() // 4, field.height() - 4))
    assert composer.prompt.hasFocus()


def test_a_broken_file_is_told_with_its_line(qtbot: QtBot, composer: Composer, tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes(b"good\n\xff\xfe bad\n")
    composer.open_file(path)
    assert "line 2" in composer.message.accessibleName()
    assert not composer.drop_file.isVisible()


def test_a_file_dropped_on_the_text_is_handed_on(qtbot: QtBot, composer: Composer, tmp_path: Path) -> None:
    dropped = QMimeData()
    dropped.setUrls([QUrl.fromLocalFile(str(tmp_path))])
    with qtbot.waitSignal(composer.path_dropped) as told:
        composer.prompt.insertFromMimeData(dropped)
    assert told.args == [tmp_path]


def test_control_up_and_down_walk_through_what_was_sent_and_undo_goes_back(
    qtbot: QtBot, composer: Composer, sent: Sent
) -> None:
    for text in ("first", "second"):
        composer.prompt.setPlainText(text)
        composer.send()
    composer.prompt.setPlainText("unsent")

    def press(key: Qt.Key) -> str:
        qtbot.keyClick(composer.prompt, key, Qt.KeyboardModifier.ControlModifier)
        return composer.prompt.toPlainText()

    assert [press(Qt.Key.Key_Up), press(Qt.Key.Key_Up), press(Qt.Key.Key_Up)] == ["second", "first", "first"]
    assert [press(Qt.Key.Key_Down), press(Qt.Key.Key_Down)] == ["second", "unsent"]
    composer.prompt.undo()
    assert composer.prompt.toPlainText() == "second"


def test_what_was_sent_is_remembered_by_the_next_window(
    qtbot: QtBot, composer: Composer, sent: Sent, session: Session, bridge: Bridge
) -> None:
    composer.prompt.setPlainText("remember me")
    composer.count.setValue(5)
    composer.send()
    following = Composer(session, bridge, SamplingParams)
    qtbot.addWidget(following)
    assert following.prompt.toPlainText() == "remember me"
    assert following.count.value() == 5


def test_send_waits_for_a_model_and_stop_for_a_request(qtbot: QtBot, composer: Composer, session: Session) -> None:
    assert not composer.send_button.isEnabled()
    assert not composer.stop_button.isEnabled()
    session.state_changed.emit(SessionState.READY)
    assert composer.send_button.isEnabled()


def test_the_editor_grows_with_its_lines_up_to_a_limit(qtbot: QtBot, composer: Composer) -> None:
    heights = []
    for lines in (1, 3, 8, 40):
        composer.prompt.setPlainText("\n".join("line" for _ in range(lines)))
        qtbot.wait(1)
        heights.append(composer.prompt.height())
    assert heights[0] < heights[1] < heights[2] == heights[3]
    first = composer.prompt.firstVisibleBlock()
    lines = 8 * composer.prompt.blockBoundingRect(first).height()
    assert composer.prompt.viewport().height() >= lines, "the last line in sight is whole"


def test_the_prompt_that_is_to_be_compressed_is_the_first_that_would_be_sent(qtbot: QtBot, composer: Composer) -> None:
    composer.chat.setEnabled(True)
    composer.chat.setChecked(True)
    composer.prompt.setPlainText("a {fox|owl} sang")
    with qtbot.waitSignal(composer.compression_asked) as told:
        composer.compress.click()
    assert told.args in ([[{"role": "user", "content": f"a {who} sang"}]] for who in ("fox", "owl"))
    composer.prompt.setPlainText("  ")
    composer.compress.click()
    assert composer.message.accessibleName() == "Nothing to send: write a prompt first."


def test_a_compressed_prompt_is_written_and_undo_brings_the_other_back(qtbot: QtBot, composer: Composer) -> None:
    composer.prompt.setPlainText("a fox sang\n\nwho?")
    composer.use([{"role": "user", "content": "fox\n\nwho?"}])
    assert composer.prompt.toPlainText() == "fox\n\nwho?"
    composer.prompt.undo()
    assert composer.prompt.toPlainText() == "a fox sang\n\nwho?"
    composer.use([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "fox"}])
    assert (composer.system.toPlainText(), composer.use_system.isChecked()) == ("Be brief.", True)
    turns = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    composer.use(turns)
    assert [s.prompt for s in composer.draft().submissions(SamplingParams())] == [turns]
    assert composer.prompt.toPlainText() == "fox"


def test_at_twice_the_size_the_buttons_leave_room_for_longer_languages(window: MainWindow) -> None:
    button = window.page.composer.send_button
    assert button.text() == "Send   Ctrl ⏎"
    theme.set_zoom(2.0)
    assert button.text() == "Send"
    assert window.page.composer.minimumSizeHint().width() < 1280 - 100
