"""The page over a real engine: what is sent, kept, branched, answered side by side, found again."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.chat.page import ChatPage
from app.chat.presets.dialog import PresetDialog
from app.chat.store.presets import Preset
from app.chat.store.tree import Role, Turn
from app.chat.transcript.turn_view import TurnView
from app.chat.transcript.words import thought_words
from app.session.recent_models import RecentModels
from app.session.session import Session
from app.ui.page import Page
from app.ui.undo import UndoStack
from engine import ModelSpec, SamplingParams
from tests.app.conftest import wait_until

WAIT = 30_000
STORY = "Tell me a story about a fox and a lantern."
LONG = SamplingParams(max_tokens=900, temperature=0.0, ignore_eos=True)


@pytest.fixture
def opened(qtbot: QtBot, loaded: Session) -> Iterator[Callable[[], ChatPage]]:
    """Makes the page, as at a start; the one before it is closed."""
    pages: list[ChatPage] = []
    window = QWidget()
    qtbot.addWidget(window)

    def open_() -> ChatPage:
        if pages:
            shut(pages[-1])
        page = ChatPage(loaded, UndoStack(window), RecentModels())
        page.resize(1280, 680)
        page.show()
        page.enter()
        pages.append(page)
        qtbot.waitUntil(lambda: page.counting.exact, timeout=WAIT)
        return page

    yield open_
    for page in pages:
        if page.isVisible():
            shut(page)
        page.deleteLater()


def shut(page: ChatPage) -> None:
    page.talk.stop()
    wait_until(lambda: not page.talk.busy)
    page.close_down()
    page.hide()
    wait_until(lambda: not asyncio.all_tasks(asyncio.get_event_loop()))


def undo_of(page: ChatPage) -> UndoStack:
    return page.changes._undo


@pytest.fixture
def page(opened: Callable[[], ChatPage]) -> ChatPage:
    return opened()


def use(page: ChatPage, *presets: Preset) -> None:
    """These presets in the columns."""
    for preset in presets:
        page.presets.save(preset)
    page.composer.offer(page.presets.all())
    page.composer.show_columns([preset.name for preset in presets], beside=len(presets) > 1)
    page._on_columns()


def say(qtbot: QtBot, page: ChatPage, text: str) -> None:
    """Types it, Enter, and waits for the answer."""
    page.composer.edit.setPlainText(text)
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)
    over(qtbot, page)


def over(qtbot: QtBot, page: ChatPage) -> None:
    qtbot.waitUntil(lambda: not page.talk.busy, timeout=WAIT)


def path(page: ChatPage, column: int = 0) -> list[Turn]:
    assert page.branches is not None
    return page.branches.path(column)


def view(page: ChatPage, turn: Turn, column: int = 0) -> TurnView:
    found = page.columns.views[column].view(turn)
    assert found is not None
    return found


def shown(view: TurnView) -> str:
    assert view.body is not None
    return view.body.text


def test_an_answer_says_what_the_trace_says(qtbot: QtBot, page: ChatPage, loaded: Session) -> None:
    say(qtbot, page, STORY)
    asked, answer = path(page)
    assert loaded.trace is not None
    request = loaded.trace.requests[answer.facts.request]
    assert (asked.text, answer.text) == (STORY, request.text)
    assert shown(view(page, answer)) == answer.text
    facts = answer.facts
    assert (facts.tokens, facts.prompt_tokens) == (len(request.tokens), len(request.prompt_ids))
    assert (facts.ttft, facts.rate) == (pytest.approx(request.ttft), pytest.approx(request.tokens_per_second))
    assert request.reason is not None
    assert facts.reason == request.reason.value
    assert Path(facts.run) == loaded.run_file
    assert view(page, answer).figures.accessibleName().startswith("TTFT")
    system = page.composer.columns[0].system
    assert [m["content"] for m in request.messages] == [system, STORY]


def test_a_next_prompt_goes_on_from_the_answer(qtbot: QtBot, page: ChatPage, loaded: Session) -> None:
    say(qtbot, page, STORY)
    say(qtbot, page, "What happened next?")
    _, first, _, second = path(page)
    assert loaded.trace is not None
    sent = loaded.trace.requests[second.facts.request].messages
    assert [m["content"] for m in sent][1:] == [STORY, first.text, "What happened next?"]
    assert page.list.current is not None
    assert page.list.current.title == STORY


def test_it_is_all_there_at_the_next_start(qtbot: QtBot, opened: Callable[[], ChatPage]) -> None:
    page = opened()
    say(qtbot, page, STORY)
    page._on_again(0, path(page)[-1])
    over(qtbot, page)
    page._on_variant(0, path(page)[-1], -1)
    texts = [turn.text for turn in path(page)]
    again = opened()
    assert again.conversation is None
    again.list.view.setCurrentIndex(again.list.rows.index(0, 0))
    assert [turn.text for turn in path(again)] == texts
    assert view(again, path(again)[-1]).variants.place.text() == "1/2"


def test_an_edited_prompt_is_a_variant_and_the_arrows_go_between_them(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, STORY)
    before = path(page)
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Up)
    bubble = view(page, before[0]).bubble
    assert bubble is not None
    assert bubble.edit is not None
    bubble.edit.setPlainText("Tell me a story about a whale.")
    QTest.keyClick(bubble.edit, Qt.Key.Key_Return)
    over(qtbot, page)
    assert page.focusWidget() is page.composer.edit
    asked, answer = path(page)
    assert asked.text == "Tell me a story about a whale."
    assert answer.text != before[1].text
    QTest.keyClick(view(page, asked), Qt.Key.Key_Left)
    assert path(page) == before
    assert shown(view(page, before[1])) == before[1].text
    assert page.branches is not None
    assert len(page.branches.tree.turns) == 4


def test_esc_ends_an_edit_and_stops_an_answer(qtbot: QtBot, page: ChatPage) -> None:
    use(page, Preset("Endless", "", LONG))
    page.send(STORY, [])
    answer = path(page)[-1]
    qtbot.waitUntil(lambda: len(answer.text) > 10, timeout=WAIT)
    assert page.composer.stop_button.isEnabled()
    assert not page.composer.send_button.isEnabled()
    assert page.give_up()
    over(qtbot, page)
    assert answer.facts.reason == "cancelled"
    assert page.composer.send_button.isEnabled()
    view(page, path(page)[0]).begin_edit()
    assert page.give_up()
    assert page.columns.views[0].editing is None
    assert page.focusWidget() is page.composer.edit
    assert not page.give_up()


def test_a_branch_is_deleted_and_undo_brings_it_back(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, STORY)
    say(qtbot, page, "And then?")
    whole = path(page)
    QTest.keyClick(view(page, whole[2]), Qt.Key.Key_Delete)
    assert path(page) == whole[:2]
    assert page.columns.views[0].path == whole[:2]
    page.notice.action.click()
    assert path(page) == whole
    undo_of(page).redo()
    assert path(page) == whole[:2]


def test_two_presets_answer_side_by_side_as_two_requests_at_once(qtbot: QtBot, page: ChatPage, loaded: Session) -> None:
    say(qtbot, page, STORY)
    use(page, Preset("A", "", SamplingParams(max_tokens=40, temperature=0.0)),
        Preset("B", "Be brief.", SamplingParams(max_tokens=20, temperature=1.0)))  # fmt: skip
    say(qtbot, page, "What happened next?")
    left, right = path(page)[-1], path(page, 1)[-1]
    assert left.parent == right.parent  # they part where the answers do
    assert (left.facts.preset, right.facts.preset) == ("A", "B")
    assert loaded.trace is not None
    first, second = (loaded.trace.requests[turn.facts.request] for turn in (left, right))
    assert second.submitted == pytest.approx(first.submitted, abs=0.05)
    assert second.messages[0]["content"] == "Be brief."
    assert first.params.temperature == 0.0
    say(qtbot, page, "And then?")
    assert path(page)[-2].parent == left.id
    assert path(page, 1)[-2].parent == right.id
    assert page.columns.views[1].isVisible()
    sent = loaded.trace.requests[path(page, 1)[-1].facts.request].messages
    assert right.text in [m["content"] for m in sent]


def test_the_text_grows_while_it_is_told(qtbot: QtBot, page: ChatPage) -> None:
    use(page, Preset("Endless", "", LONG))
    page.send(STORY, [])
    answer = path(page)[-1]
    lengths = set()

    def grown() -> bool:
        lengths.add(len(shown(view(page, answer))))
        return len(lengths) > 4

    qtbot.waitUntil(grown, timeout=WAIT)
    assert page.talk.writes(answer)
    assert view(page, answer).figures.accessibleName().endswith("answering")


def test_conversations_are_searched_renamed_pinned_and_deleted(qtbot: QtBot, page: ChatPage) -> None:
    unheard = "Tell me a story about a xylophone."  # which no answer speaks of
    for text in (unheard, "Tell me a story about a whale."):
        page.new_conversation()
        say(qtbot, page, text)
    rows = page.list.rows
    assert [row.title for row in rows.rows] == ["Tell me a story about a whale.", unheard]
    page.list.search.setText("xyloph")
    assert [row.title for row in rows.rows] == [unheard]
    page.list.search.clear()
    assert rows.setData(rows.index(1, 0), "  The fox ")
    assert rows.rows[1].title == "The fox"
    page.list.pin_asked.emit(rows.rows[1])
    assert rows.rows[0].title == "The fox"
    page.delete(rows.rows[0])
    assert [row.title for row in rows.rows] == ["Tell me a story about a whale."]
    for _ in range(3):
        undo_of(page).undo()
    assert [row.title for row in rows.rows] == ["Tell me a story about a whale.", unheard]


def test_files_are_dropped_counted_and_sent(qtbot: QtBot, page: ChatPage, tmp_path: Path, loaded: Session) -> None:
    notes, picture = tmp_path / "notes.txt", tmp_path / "fox.png"
    notes.write_text("The fox is red.")
    picture.write_bytes(b"\x89PNG\0")
    dropped = QMimeData()
    dropped.setUrls([QUrl.fromLocalFile(str(path)) for path in (notes, picture)])
    page.composer.edit.insertFromMimeData(dropped)
    qtbot.waitUntil(lambda: "fox.png is no text" in page.composer.error.text(), timeout=WAIT)
    (file,) = page.composer.files.files
    assert 3 <= file.tokens <= 8
    page.composer.edit.setPlainText(STORY)
    qtbot.waitUntil(lambda: page.composer.room is not None, timeout=WAIT)
    assert "1,024" in page.composer.gauge.accessibleName()
    room = page.composer.room
    page.composer.send()
    over(qtbot, page)
    answer = path(page)[-1]
    assert room is not None
    assert room.least <= answer.facts.prompt_tokens <= room.most
    assert loaded.trace is not None
    sent = loaded.trace.requests[answer.facts.request].messages[-1]["content"]
    assert sent == f"notes.txt\n```\nThe fox is red.\n```\n\n{STORY}"


def test_what_is_too_long_is_told_and_stays(qtbot: QtBot, page: ChatPage) -> None:
    page.composer.edit.setPlainText("fox and whale " * 600)
    qtbot.waitUntil(lambda: page.composer.room is not None, timeout=WAIT)
    page.composer.send()
    assert "begin a new conversation" in page.composer.error.text()
    assert page.composer.edit.toPlainText()
    assert page.conversation is None


def test_what_the_engine_refuses_is_said_below_the_prompt(qtbot: QtBot, page: ChatPage) -> None:
    page.send("fox and whale " * 600, [])  # before anything was counted
    over(qtbot, page)
    answer = path(page)[-1]
    assert "context of 1,024" in answer.facts.error
    assert view(page, answer).error.isVisible()


def test_presets_are_changed_in_their_dialog(qtbot: QtBot, page: ChatPage) -> None:
    page.show_presets()
    (dialog,) = (w for w in QApplication.topLevelWidgets() if isinstance(w, PresetDialog) and w.isVisible())
    dialog.list.setCurrentRow(1)
    dialog.name.setText("Strict")
    dialog.system.setPlainText("Say no.")
    dialog.form["stop"].set(("The end",))
    dialog.keep()
    kept = page.presets.named("Strict")
    assert (kept.system, kept.params.stop, kept.params.temperature) == ("Say no.", ("The end",), 0.0)
    dialog.name.setText("Storyteller")
    dialog.keep()
    assert "already" in dialog.error.text()
    dialog._on_new()
    assert page.presets.named("Strict 2").system == "Say no."
    dialog._on_delete()
    assert "Strict 2" not in [preset.name for preset in page.presets.all()]
    dialog.notice.action.click()
    assert "Strict 2" in [page.composer.choices[0].itemText(i) for i in range(page.composer.choices[0].count())]
    dialog.accept()


def test_a_long_conversation_is_built_from_its_end(qtbot: QtBot, page: ChatPage) -> None:
    kept = page.store.create("Long", ["Exact", "Exact"])
    turn = None
    for i in range(60):
        turn = page.store.add(kept, turn, Role.USER if i % 2 == 0 else Role.ASSISTANT, f"words {i} " * 30)
    page.show_conversation(kept)
    column = page.columns.views[0]
    assert len(column.views) < 60
    qtbot.waitUntil(lambda: len(column.views) == 60, timeout=WAIT)
    assert [each.turn.text[:8] for each in column.views][:2] == ["words 0 ", "words 1 "]
    bar = column.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.value() == bar.maximum() > 0, timeout=WAIT)


def test_a_file_that_cannot_be_read_is_told_of_and_the_page_works(
    qtbot: QtBot, opened: Callable[[], ChatPage], own_settings: Path
) -> None:
    (own_settings / "chats.sqlite").write_bytes(b"no database " * 100)
    page = opened()
    assert "not kept" in page.notice.title.text()
    say(qtbot, page, STORY)
    assert path(page)[-1].text


def test_it_is_a_page_of_the_window(page: ChatPage, tmp_path: Path) -> None:
    assert isinstance(page, Page)
    assert not page.take_file(tmp_path)
    assert page.composer.edit.hasFocus() or page.focusWidget() is page.composer.edit


def test_a_second_model_is_loaded_beside_the_first_and_answers_after_it(
    qtbot: QtBot, page: ChatPage, loaded: Session
) -> None:
    brief = SamplingParams(max_tokens=12, temperature=0.0)
    use(page, Preset("A", "", brief), Preset("B", "", brief))
    page._offer_models()
    page.second.choose(ModelSpec("demo", dtype="bfloat16"))
    assert not page.composer.send_button.isEnabled()
    qtbot.waitUntil(lambda: page.second.ready, timeout=2 * WAIT)
    assert "loading" not in page.columns.model.text()
    second = page.second.session
    assert second is not None
    say(qtbot, page, STORY)
    left, right = path(page)[-1], path(page, 1)[-1]
    assert left.text
    assert right.text
    assert Path(right.facts.run) == second.run_file != loaded.run_file
    assert second.trace is not None
    assert right.text == second.trace.requests[right.facts.request].text
    pid = second.engine_pid
    page.composer.beside.click()
    assert page.second.session is None
    assert pid is not None
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_second_model_that_does_not_fit_is_told_and_the_first_goes_on(
    qtbot: QtBot, page: ChatPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat.second_model.needed_and_free", lambda spec: (9 << 30, 1 << 30))
    page.second.choose(ModelSpec("demo", dtype="bfloat16"))
    qtbot.waitUntil(lambda: page.notice.isVisible(), timeout=WAIT)
    assert "choose a smaller one" in page.notice.text.text()
    assert page.composer.send_button.isEnabled()


def test_an_answer_goes_on_while_another_conversation_is_on_show(qtbot: QtBot, page: ChatPage) -> None:
    use(page, Preset("Endless", "", LONG))
    page.send(STORY, [])
    first, answer = page.conversation, path(page)[-1]
    assert first is not None
    page.new_conversation()
    assert page.composer.send_button.isEnabled()
    qtbot.waitUntil(lambda: len(answer.text) > 200, timeout=WAIT)
    page.show_conversation(first)
    assert page.composer.answering
    assert len(shown(view(page, answer))) > 200
    page.give_up()
    over(qtbot, page)


def test_undo_goes_back_to_a_conversation_that_was_left(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, STORY)
    first, whole = page.conversation, path(page)
    assert first is not None
    page._on_delete_turn(0, whole[1])
    page.new_conversation()
    undo_of(page).undo()
    page.show_conversation(first)
    assert path(page) == whole
    assert shown(view(page, whole[1])) == whole[1].text


def test_tab_goes_through_the_turns_to_the_prompt(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, STORY)
    asked, answer = (view(page, turn) for turn in path(page))
    page.activateWindow()
    asked.setFocus()
    visited = []
    for _ in range(12):
        widget = QApplication.focusWidget()
        assert widget is not None
        visited.append(widget.objectName())
        QTest.keyClick(widget, Qt.Key.Key_Tab)
    assert visited[:5] == [asked.objectName(), "turn_edit_button", "turn_copy", "turn_delete", answer.objectName()]
    assert visited.index("chat_prompt") > visited.index("turn_inside") > 4


THINKS = SamplingParams(max_tokens=120, temperature=0.0, regex="<think>[a-z ]{60}</think>[A-Z][a-z ]{20}[.]")


def test_thoughts_are_folded_above_the_answer_and_not_sent_again(qtbot: QtBot, page: ChatPage, loaded: Session) -> None:
    pytest.importorskip("llguidance")
    use(page, Preset("Thinker", "", THINKS))
    say(qtbot, page, STORY)
    answer = path(page)[-1]
    head, _, tail = answer.text.partition("</think>")
    seen = view(page, answer)
    assert seen.thoughts is not None
    assert shown(seen) == tail
    assert seen.thoughts.isVisible()
    facts = answer.facts
    assert facts.thought is not None
    assert 0 < facts.thoughts < facts.tokens
    assert seen.thoughts.fold.text() == f"▸  {thought_words(facts, thinking=False)}"
    assert not seen.thoughts.body.isVisible()
    QTest.keyClick(seen, Qt.Key.Key_T)
    assert seen.thoughts.body.isVisible()
    assert seen.thoughts.body.text == head.removeprefix("<think>").strip()
    QTest.keyClick(seen, Qt.Key.Key_C)
    assert QApplication.clipboard().text() == tail
    QTest.keyClick(seen, Qt.Key.Key_M)
    assert not seen.thoughts.isVisible()
    assert shown(seen) == answer.text
    say(qtbot, page, "And then?")
    assert loaded.trace is not None
    sent = loaded.trace.requests[path(page)[-1].facts.request].messages
    assert [m["content"] for m in sent] == [STORY, tail, "And then?"]
