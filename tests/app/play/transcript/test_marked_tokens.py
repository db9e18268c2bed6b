"""The tokens of a transcript: their grounds, the caret, the card, the cursor in the past, and samples."""

from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QMouseEvent, QTextCursor
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.play.transcript.panel import Transcript
from app.play.transcript.styles import GHOST, PLAIN, TokenMode, formats, grounds
from app.play.transcript.tokens import Waits, token_classes
from app.playback.bridge import Bridge
from app.ui.look import theme
from engine import Trace, load_trace, save_trace
from tests.app.contrast import contrast
from tests.app.play.transcript.test_panel import Listener
from tests.app.told import Story, Tell, ToldRuns

LEFT = Qt.MouseButton.LeftButton
ARGB = QColor.NameFormat.HexArgb


def move_pointer(widget: QWidget, point: QPoint) -> None:
    """To the widget itself: a window that a test before left on the screen, or a button it left held, would have it."""
    none, there = Qt.MouseButton.NoButton, QPointF(point)
    global_there = QPointF(widget.mapToGlobal(point))
    modifiers = Qt.KeyboardModifier.NoModifier
    move = QMouseEvent(QEvent.Type.MouseMove, there, global_there, none, none, modifiers)
    QApplication.sendEvent(widget, move)


@pytest.fixture
def transcript(qtbot: QtBot, bridge: Bridge) -> Transcript:
    for window in QApplication.topLevelWidgets():
        window.hide()  # one that lay over it would have the pointer
    transcript = Transcript(bridge, Listener())  # type: ignore[arg-type]
    qtbot.addWidget(transcript)
    transcript.resize(520, 360)
    transcript.show()
    qtbot.waitExposed(transcript)
    return transcript


@pytest.fixture(params=["live", "saved"])
def sampled(request: pytest.FixtureRequest, qtbot: QtBot, bridge: Bridge, told_runs: ToldRuns, tmp_path: Path) -> Trace:
    """The run on show: as it grew, or from its file."""
    if request.param == "saved":
        save_trace(told_runs.sampled, tmp_path / "run.bsrun")
        trace = load_trace(tmp_path / "run.bsrun")
        bridge.show(trace)
    else:
        trace = Trace(told_runs.sampled.records[:2])
        bridge.show(trace)
        for begin in range(2, len(told_runs.sampled.records), 40):
            trace.extend(told_runs.sampled.records[begin : begin + 40])
            qtbot.waitUntil(lambda: bridge.behind == 0)
    qtbot.waitUntil(lambda: bridge.behind == 0)
    bridge.scope.catch_up()
    return trace


def choose(transcript: Transcript, mode: TokenMode) -> None:
    transcript.switch.modes.button(list(TokenMode).index(mode)).click()


def drawn(transcript: Transcript, token: int) -> object:
    """The ground under the first character of a token."""
    begin, end = transcript.text.units(token)
    assert end > begin
    cursor = QTextCursor(transcript.text.document())
    cursor.setPosition(begin + 1)
    brush = cursor.charFormat().background()
    return brush.color() if brush.style() is not Qt.BrushStyle.NoBrush else None


def answer(transcript: Transcript) -> str:
    """What the document holds after the prompt, read by its own positions."""
    begin = transcript.text.units(0)[0]
    cursor = QTextCursor(transcript.text.document())
    cursor.setPosition(begin)
    cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
    return cursor.selectedText().replace("\u2029", "\n")


def said(transcript: Transcript) -> str:
    return transcript.text._text[: transcript.text.said]


def inks(transcript: Transcript, begin: int, end: int) -> set[str]:
    """The colours in which the characters `[begin, end)` of an answer of plain letters are written."""
    base, cursor, colors = transcript.text.units(0)[0], QTextCursor(transcript.text.document()), set()
    for position in range(begin, end):
        cursor.setPosition(base + position + 1)
        colors.add(cursor.charFormat().foreground().color().name(ARGB))
    return colors


@pytest.mark.parametrize("mode", [TokenMode.PROBABILITY, TokenMode.TIME])
def test_every_token_stands_on_the_ground_of_its_class(bridge, sampled, transcript, mode) -> None:
    transcript.select(0)
    choose(transcript, mode)
    view = bridge.requests[0]
    if mode is TokenMode.PROBABILITY:
        classes = token_classes(view.logprobs)
    else:
        classes = Waits.of(view.submitted, view.token_times).classes()
    lengths = np.diff(np.array(view.samples[0].text_ends, int), prepend=0)
    seen = set()
    for token in np.flatnonzero(lengths).tolist():
        assert drawn(transcript, token) == grounds(mode).get(int(classes[token]) % 8), token
        seen.add(int(classes[token]))
    assert len(seen) >= 3
    choose(transcript, TokenMode.TEXT)
    assert {drawn(transcript, token) for token in np.flatnonzero(lengths).tolist()} == {None}


def test_an_answer_that_grows_looks_as_one_that_is_met_late(qtbot, bridge, told_runs, transcript) -> None:
    choose(transcript, TokenMode.TIME)
    records = told_runs.sampled.records
    growing = Trace(records[:3])
    bridge.show(growing)
    qtbot.waitUntil(lambda: 0 in bridge.requests)
    transcript.select(0)
    for begin in range(3, len(records), 7):
        growing.extend(records[begin : begin + 7])
        qtbot.waitUntil(lambda: bridge.behind == 0)
    kinds, text = transcript.text._kinds.copy(), transcript.text.toPlainText()
    grown = transcript.text.document().toHtml()
    transcript._rewrite()
    assert transcript.text.toPlainText() == text
    assert transcript.text._kinds.tolist() == kinds.tolist()
    assert transcript.text.document().toHtml() == grown


def test_the_caret_goes_by_token_and_by_line(qtbot, bridge, sampled, transcript) -> None:
    transcript.select(0)
    choose(transcript, TokenMode.PROBABILITY)
    text, last = transcript.text, len(bridge.requests[0].tokens) - 1
    press = lambda key: qtbot.keyClick(text, key)  # noqa: E731
    press(Qt.Key.Key_Home)
    assert text.token == 0
    press(Qt.Key.Key_Right)
    press(Qt.Key.Key_Right)
    assert text.token == 2
    press(Qt.Key.Key_Left)
    assert text.token == 1
    top = text.token_rects(1)[0].toAlignedRect().top()
    press(Qt.Key.Key_Down)
    below = text.token
    assert text.token_rects(below)[0].toAlignedRect().top() > top
    press(Qt.Key.Key_Up)
    assert abs(text.token - 1) <= 1
    press(Qt.Key.Key_End)
    assert text.token == last
    press(Qt.Key.Key_Right)
    assert text.token == last
    assert transcript.card.isVisible()
    press(Qt.Key.Key_Escape)
    assert text.token == -1
    assert not transcript.card.isVisible()


def test_the_card_tells_the_steps_alternatives(bridge, sampled, transcript) -> None:
    transcript.select(0)
    choose(transcript, TokenMode.PROBABILITY)
    for token in (0, 7, 20):
        transcript.text.go(token)
        card = transcript.card.card
        assert card is not None
        step = next(s for s in sampled.steps if s.ended == bridge.requests[0].token_times[token])
        place = next(i for i, row in enumerate(step.token_row.tolist()) if step.request[row] == 0)
        which = np.flatnonzero(step.alt_token_index == place)
        assert len(which) == 5
        assert [a.token for a in card.alternatives[:5]] == step.alt_token[which].tolist()
        assert [a.probability for a in card.alternatives[:5]] == pytest.approx(np.exp(step.alt_logprob[which]).tolist())
        assert f"step {step.step:,}" in transcript.card.accessibleName()
    transcript.select(2)
    transcript.text.go(3)
    assert transcript.card.card.alternatives == ()
    assert "Alternatives were not recorded" in transcript.card.accessibleName()


def test_the_pointer_shows_a_card_and_a_click_goes_to_the_step(qtbot, bridge, sampled, transcript) -> None:
    transcript.select(0)
    choose(transcript, TokenMode.PROBABILITY)
    text, view = transcript.text, bridge.requests[0]
    for token in (3, 11, 25):
        point = text.token_rects(token)[0].toAlignedRect().center()
        assert text.token_under(point) == token
        move_pointer(text.viewport(), point)
        assert (text.pointed, transcript.card.card.index) == (token, token)
        qtbot.mouseClick(text.viewport(), LEFT, pos=point)
        assert bridge.scope.moment == view.token_times[token]
        step = bridge.scope.step
        assert view.tokens[token] in step.token.tolist()
        assert step.step == transcript.card_of(token).step
    assert text.token_under(QPoint(text.viewport().width() - 2, text.viewport().height() - 2)) == -1
    bridge.scope.follow()
    qtbot.keyClick(text, Qt.Key.Key_Home)
    qtbot.keyClick(text, Qt.Key.Key_Return)
    assert bridge.scope.moment == view.token_times[0]


def test_without_a_mode_the_text_is_read_as_ever(qtbot, bridge, sampled, transcript) -> None:
    transcript.select(0)
    point = transcript.text.token_rects(5)[0].toAlignedRect().center()
    move_pointer(transcript.text.viewport(), point)
    qtbot.mouseClick(transcript.text.viewport(), LEFT, pos=point)
    assert bridge.scope.following
    assert transcript.card.card is None


def test_the_past_shows_what_had_been_said_and_the_rest_faintly(bridge, sampled, transcript) -> None:
    transcript.select(0)
    view = bridge.requests[0]
    whole = answer(transcript)
    rng = np.random.default_rng(3)
    for moment in [*rng.uniform(0, bridge.scope.end, 12), view.token_times[9], float(view.submitted) - 1e-6]:
        bridge.scope.seek(float(moment))
        bridge.scope.catch_up()
        tokens = sum(time <= moment for time in view.token_times)
        assert len(said(transcript)) == (view.samples[0].text_ends[tokens - 1] if tokens else 0)
        assert answer(transcript) == whole
        assert inks(transcript, 0, transcript.text.said) <= {
            formats(TokenMode.TEXT)[PLAIN].foreground().color().name(ARGB)
        }
        assert inks(transcript, transcript.text.said, len(whole)) <= {
            formats(TokenMode.TEXT)[GHOST].foreground().color().name(ARGB)
        }
    assert "not submitted yet" in transcript.name.text()
    bridge.scope.follow()
    bridge.scope.catch_up()
    assert said(transcript) == view.text
    assert "finished" in transcript.name.text()


def test_new_words_wait_until_the_newest_is_on_show_again(bridge, tell, story, transcript) -> None:
    tell([story.submitted(1), story.step({1: "Once"}), story.step({1: " upon"})])
    transcript.select(1)
    bridge.scope.catch_up()
    bridge.scope.seek(story.time - 0.05)
    bridge.scope.catch_up()
    assert said(transcript) == "Once"
    tell([story.step({1: " a"}), story.step({1: " time"})])
    bridge.scope.catch_up()
    assert (said(transcript), transcript.text._text) == ("Once", "Once upon")
    bridge.scope.follow()
    bridge.scope.catch_up()
    assert said(transcript) == "Once upon a time"


def test_every_sample_can_be_read(qtbot, bridge, sampled, transcript) -> None:
    transcript.select(0)
    assert transcript.switch.samples.isHidden()
    transcript.select(1)
    assert [transcript.switch.samples.itemText(i) for i in range(3)] == [f"Sample {i} of 3" for i in (1, 2, 3)]
    texts = [sample.text for sample in bridge.requests[1].samples]
    assert len(set(texts)) == 3
    choose(transcript, TokenMode.PROBABILITY)
    for i, text in enumerate(texts):
        transcript.switch.samples.setCurrentIndex(i)
        transcript.switch.samples.activated.emit(i)
        assert said(transcript) == text
        transcript.text.go(2)
        assert transcript.card.card.token == bridge.requests[1].samples[i].tokens[2]
    transcript.select(0)
    assert said(transcript) == bridge.requests[0].text


def test_a_delivered_batch_says_that_all_came_at_once(qtbot, bridge, told_runs, transcript) -> None:
    bridge.show(Trace(told_runs.delivered.records))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    bridge.scope.catch_up()
    transcript.select(1)
    choose(transcript, TokenMode.TIME)
    words = transcript.switch.legend.accessibleName()
    assert words.startswith("first: TTFT ")
    assert words.endswith("with the one before")
    assert "ITL" not in words
    transcript.text.go(4)
    assert "with 19 others" in transcript.card.accessibleName()


ODD = ["狐狸", " und", " 🦊", "", "🦊\r\n", "\r", "مرحبا", "\n\n", "é", "\N{ZERO WIDTH JOINER}", "\t", "end"]


@pytest.mark.parametrize("at_once", [True, False])
def test_odd_characters_stay_with_their_tokens(tell: Tell, story: Story, transcript: Transcript, at_once: bool) -> None:
    transcript.switch.modes.button(1).click()
    steps = [story.submitted(1), *(story.step({1: part}) for part in ODD)]
    if at_once:
        tell(steps)
        transcript.select(1)
    else:
        tell(steps[:1])
        transcript.select(1)
        for step in steps[1:]:
            tell([step])
    text = transcript.text
    assert answer(transcript) == "".join(ODD).replace("\r", "")
    for i, part in enumerate(ODD):
        begin, end = text.units(i)
        cursor = QTextCursor(text.document())
        cursor.setPosition(begin)
        cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
        assert cursor.selectedText().replace("\u2029", "\n") == part.replace("\r", "")
        assert all(text.token_at(position) == i for position in range(begin, end))
        text.go(i)
        assert transcript.card.card.text == part
    assert text.token_at(text.units(0)[0] - 1) == -1


@pytest.mark.parametrize("width", [300, 420, 1200])
def test_the_legend_is_seen_whole(qtbot, bridge, sampled, transcript, width) -> None:
    transcript.select(0)
    choose(transcript, TokenMode.TIME)
    transcript.resize(width, 460)
    legend = transcript.switch.legend
    qtbot.waitUntil(lambda: legend.height() >= legend.heightForWidth(legend.width()))
    boxes = legend._boxes(legend.width())
    assert len(boxes) == 5
    assert boxes[-1].bottom() <= legend.height()
    assert max(box.right() for box in boxes) <= legend.width()


def test_the_mode_is_remembered(qtbot, bridge, transcript) -> None:
    choose(transcript, TokenMode.TIME)
    following = Transcript(bridge, Listener())  # type: ignore[arg-type]
    qtbot.addWidget(following)
    assert following.switch.mode is following.text.mode is TokenMode.TIME


@pytest.mark.parametrize("name", ["dark", "light"])
@pytest.mark.parametrize("mode", [TokenMode.PROBABILITY, TokenMode.TIME])
def test_text_is_legible_on_every_ground_and_no_class_is_told_by_colour_alone(name, mode) -> None:
    theme.set_theme(name)
    field = theme.current().field
    for kind, color in grounds(mode).items():
        assert contrast(theme.current().text, theme.over(color, field)) >= 4.5, kind
    looks = [(f.background().color().getRgb(), f.underlineStyle()) for k, f in formats(mode).items() if k < GHOST]
    assert len(set(looks)) == len(looks) - (mode is TokenMode.TIME) * 2 - (mode is TokenMode.PROBABILITY) * 2
    worst = {TokenMode.PROBABILITY: (3, 4), TokenMode.TIME: (3, 4)}[mode]
    lines = [formats(mode)[kind].underlineStyle() for kind in worst]
    assert formats(mode)[0].underlineStyle() not in lines
    assert len(set(lines)) == 2


def test_the_card_stays_inside_the_window(bridge, sampled, transcript) -> None:
    transcript.select(0)
    choose(transcript, TokenMode.PROBABILITY)
    for size in ((320, 420), (520, 300), (1200, 700)):
        transcript.resize(*size)
        for token in (0, 12, len(bridge.requests[0].tokens) - 1):
            transcript.text.go(token)
            assert transcript.rect().contains(transcript.card.geometry()) or size[1] < transcript.card.height() + 12
    transcript.hide()
    assert not transcript.card.isVisible()


def test_what_is_only_thought_is_quiet_as_text(tell, story, transcript) -> None:
    tell([story.submitted(1)])
    transcript.select(1)
    tell([story.step({1: word}) for word in ("<think>", "Of kites.", "</think>", " Up it")])
    t, document = theme.current(), transcript.text.document()
    begin = document.toPlainText().index("<think>")

    def color(word: str) -> QColor:
        cursor = QTextCursor(document)
        cursor.setPosition(document.toPlainText().index(word, begin) + 1)
        return cursor.charFormat().foreground().color()

    assert [color(word) for word in ("Of", "</think>", "Up")] == [t.secondary, t.secondary, t.text]
    choose(transcript, TokenMode.TIME)
    assert color("Of") == t.text, "here tokens are told apart by what they took"
