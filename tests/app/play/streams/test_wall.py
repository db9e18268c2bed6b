from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QColor, QGuiApplication, QPainter, QPixmap

from app.bench.synthetic import synthetic_trace
from app.play.streams.card_painter import CardPainter
from app.play.streams.density import LOOKS, Density
from app.play.streams.wall import StreamWall
from app.playback.bridge import Bridge
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from app.words import request_tooltip, state_words
from engine import Trace
from engine.trace import FinishReason, Refusal
from tests.app.play.streams.card_places import card_rect

LEFT = Qt.MouseButton.LeftButton


def test_a_card_says_why_the_scheduler_refused_its_request(bridge, tell, story, wall, monkeypatch) -> None:
    said: dict[int, str] = {}
    paint = CardPainter._small_print
    monkeypatch.setattr(
        CardPainter,
        "_small_print",
        lambda self, painter, x, y, view, words: (
            said.update({view.request: words}) or paint(self, painter, x, y, view, words)
        ),
    )
    full = [(2, Refusal.NO_BLOCKS)]
    tell([*(story.submitted(r) for r in (1, 2, 3)), story.step({1: "Once"}, refused=full)])
    wall.grab()
    assert "60 of 100 blocks are free" in said[2]
    assert (said[1], said[3]) == ("", "in the queue, 1 before it")
    tell([story.step({1: " upon", 2: "A"})])
    wall.grab()
    assert said[2] == ""


def words(bridge: Bridge) -> dict[int, str]:
    return {request: state_words(view) for request, view in bridge.requests.items()}


def test_cards_say_what_each_request_does(bridge, tell, story, wall) -> None:
    tell([story.submitted(r) for r in range(1, 8)])
    tell([
        story.step({1: "Once"}, prefill={1: (0, 4), 2: (0, 3)}),
        story.step({1: " upon", 3: "A", 4: "B", 5: "C", 6: "D"}),
        story.step({}, preempted=[6]),
        story.ended(3), story.ended(4, FinishReason.LENGTH), story.ended(5, FinishReason.ERROR, "NaN in the logits"),
    ])  # fmt: skip
    assert words(bridge) == {
        1: "decoding", 2: "prefill 3/4", 3: "finished · stop", 4: "finished · length", 5: "error", 6: "preempted",
        7: "queued",
    }  # fmt: skip
    assert wall.counts.text() == "1 failed  ·  2 running  ·  2 waiting  ·  2 done"
    assert not wall.grab().isNull()


def test_counts_follow_the_steps(tell, story, wall) -> None:
    tell([story.submitted(r) for r in range(1, 6)])
    assert wall.counts.text() == "0 running  ·  5 waiting  ·  0 done"
    tell([story.step({1: "a", 2: "b", 3: "c"}, waiting=2)])
    assert wall.counts.text() == "3 running  ·  2 waiting  ·  0 done"


def test_counts_give_way_whole_where_there_is_no_room(qtbot, tell, story, wall) -> None:
    tell([story.submitted(r) for r in range(1, 6)])
    wall.resize(320, 400)
    qtbot.waitUntil(lambda: wall.counts.text() == "5 waiting")
    assert wall.counts.accessibleName() == "0 running, 5 waiting, 0 done"


def test_new_words_appear_on_the_last_line_of_the_card(bridge, tell, story, wall) -> None:
    tell([story.submitted(1)])
    tell([story.step({1: f" word{i}"}) for i in range(60)])
    assert wall.cards._painter.tail(bridge.requests[1])[-1].endswith("word59")
    tell([story.step({1: " more"})])
    assert wall.cards._painter.tail(bridge.requests[1])[-1].endswith("more")


def test_a_click_selects_and_a_click_beside_gives_up(qtbot, tell, story, wall) -> None:
    tell([story.submitted(r) for r in range(1, 4)])
    heard: list[int] = []
    wall.bridge.scope.selected.connect(heard.append)
    qtbot.mouseClick(wall.cards.viewport(), LEFT, pos=card_rect(wall, 2).center())
    assert (heard, wall.cards.current) == ([2], 2)
    qtbot.mouseClick(wall.cards.viewport(), LEFT, pos=QPoint(900, 500))
    assert (heard, wall.cards.current) == ([2, -1], None)


def test_the_selected_card_is_outlined(qtbot, tell, story, wall) -> None:
    tell([story.submitted(r) for r in range(1, 4)])

    def edge(request: int) -> QColor:
        rect = card_rect(wall, request)
        return wall.cards.viewport().grab().toImage().pixelColor(rect.left() + 40, rect.top())

    plain = edge(2)
    wall.cards.select(2)
    assert edge(2) != plain
    assert edge(2).blueF() > 0.6
    assert edge(1) == plain


def test_arrow_keys_walk_the_grid(qtbot, tell, story, wall) -> None:
    tell([story.submitted(r) for r in range(1, 21)])
    columns = wall.cards._columns
    assert columns >= 3
    press = lambda key: qtbot.keyClick(wall.cards, key)  # noqa: E731
    press(Qt.Key.Key_Right)
    assert wall.cards.current == 1
    press(Qt.Key.Key_Right)
    press(Qt.Key.Key_Down)
    assert wall.cards.current == 2 + columns
    press(Qt.Key.Key_End)
    assert wall.cards.current == 20
    assert "Stream 20, queued" in wall.cards.accessibleDescription()


def test_selection_from_elsewhere_shows_the_card_and_tells_no_one(tell, story, wall) -> None:
    tell([story.submitted(r) for r in range(1, 201)])
    heard: list[int] = []
    wall.bridge.scope.selected.connect(heard.append)
    wall.cards.select(150)
    assert heard == []
    assert wall.cards.viewport().rect().contains(card_rect(wall, 150))


def test_it_follows_the_newest_until_the_person_scrolls_away(qtbot, tell, story, wall) -> None:
    bar = wall.cards.verticalScrollBar()
    tell([story.submitted(r) for r in range(1, 101)])
    tell([story.step(dict.fromkeys(range(1, 60), "a"))])
    assert wall.cards.viewport().rect().contains(card_rect(wall, 59))
    assert wall.newest.isHidden()
    bar.setValue(0)
    tell([story.step(dict.fromkeys(range(1, 101), "a"))])
    assert bar.value() == 0
    assert not wall.newest.isHidden()
    qtbot.mouseClick(wall.newest, LEFT)
    assert wall.cards.viewport().rect().contains(card_rect(wall, 100))
    assert wall.newest.isHidden()


def test_new_requests_do_not_move_what_is_being_read(tell, story, wall) -> None:
    tell([story.submitted(r) for r in range(1, 101)])
    bar = wall.cards.verticalScrollBar()
    bar.setValue(bar.singleStep())
    before = wall.cards.request_at(QPoint(20, 20))
    tell([story.submitted(r) for r in range(101, 301)])
    assert wall.cards.request_at(QPoint(20, 20)) == before


def test_keys_copy_stop_and_ask_again(qtbot, tell, story, wall) -> None:
    tell([story.submitted(1), story.step({1: "Once upon"})])
    wall.cards.select(1)
    qtbot.keyClick(wall.cards, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "Once upon"
    for key, signal in (
        (Qt.Key.Key_Delete, wall.cards.stop_requested), (Qt.Key.Key_R, wall.cards.regenerate_requested),
        (Qt.Key.Key_U, wall.cards.follow_up_requested), (Qt.Key.Key_Return, wall.cards.request_opened),
    ):  # fmt: skip
        with qtbot.waitSignal(signal) as heard:
            qtbot.keyClick(wall.cards, key)
        assert heard.args == [1]


def test_the_menu_offers_what_can_be_done_now(tell, story, wall) -> None:
    tell([story.submitted(1), story.submitted(2), story.step({1: "a"}), story.ended(1)])

    def enabled(request: int) -> set[str]:
        menu = wall.cards.menu(request)
        words = {a.text().split("\t")[0] for a in menu.actions() if a.isEnabled()}
        menu.deleteLater()
        return words

    always = {"Open transcript", "Regenerate", "Compress its prompt …"}
    assert enabled(1) == always | {"Copy text", "Follow up"}
    assert enabled(2) == always | {"Stop this one"}


def test_few_cards_grow_and_many_stay_readable(tell, story, wall) -> None:
    tell([story.submitted(1)])
    wall.set_density(Density.USUAL)
    few = wall.cards._painter.lines
    tell([story.submitted(r) for r in range(2, 100)])
    assert few > wall.cards._painter.lines == 4


def rects(wall: StreamWall) -> list[QRect]:
    return [card_rect(wall, request) for request in wall.cards.ids]


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (2, 2), (3, 3), (4, 2)])
def test_up_to_four_answers_stand_in_columns_to_be_read(tell, story, wall, count, columns) -> None:
    tell([story.submitted(r) for r in range(1, count + 1)])
    plan, room = wall.cards._painter.plan, wall.cards.viewport().rect()
    assert plan.look.text.font.pointSizeF() > LOOKS[Density.USUAL].text.font.pointSizeF()
    assert plan.columns == columns
    cards = rects(wall)
    assert all(room.contains(card) for card in cards)
    assert sum(card.height() for card in cards[::columns]) > 0.85 * room.height(), "they take the height there is"


@pytest.mark.parametrize("count", [3, 9, 20])
def test_where_there_is_less_room_all_that_can_be_are_in_sight(qtbot, tell, story, wall, count) -> None:
    wall.resize(632, 250)
    qtbot.waitUntil(lambda: wall.width() == 632)
    tell([story.submitted(r) for r in range(1, count + 1)])
    room, cards = wall.cards.viewport().rect(), rects(wall)
    assert all(room.contains(card) for card in cards) == (count < 20)
    assert count > 3 or sum(card.height() for card in cards[:: wall.cards._columns]) > 0.8 * room.height()


def test_an_answer_to_be_read_begins_under_its_prompt_and_then_shows_its_end(tell, story, wall, monkeypatch) -> None:
    written: list[list[str]] = []
    write = CardPainter._write
    monkeypatch.setattr(
        CardPainter, "_write", lambda self, *given: (written.append(list(given[-1])), write(self, *given))[1]
    )
    tell([story.submitted(1), story.step({1: " Once upon"})])
    wall.grab()
    assert ["Once upon"] in written
    tell([story.step({1: f" line{i:04d}"}) for i in range(600)])
    written.clear()
    wall.grab()
    assert written[-1][-1].endswith("line0599")
    assert len(written[-1]) == wall.cards._painter.lines - 2, "a line for the prompt, and one between"


def test_the_layout_that_a_person_chooses_is_remembered(qtbot, bridge, tell, story, wall) -> None:
    tell([story.submitted(r) for r in range(1, 4)])
    actions = {action.text(): action for action in wall.layout_button.menu().actions()}
    assert actions["By their number"].isChecked()
    actions["Many at a glance"].trigger()
    assert wall.cards._painter.plan.look is LOOKS[Density.DENSE]
    again = StreamWall(bridge)
    qtbot.addWidget(again)
    assert [action.text() for action in again.layout_button.menu().actions() if action.isChecked()] == [
        "Many at a glance"
    ]
    assert again.cards._painter.plan.look is LOOKS[Density.DENSE]
    actions["By their number"].trigger()
    assert wall.cards._painter.plan.look is LOOKS[Density.READING]


def test_the_window_shows_32_streams_at_once(qtbot, bridge, window, tell, story) -> None:
    window.resize(1600, 1000)
    tell([story.submitted(r) for r in range(1, 33)])
    cards = window.page.wall.cards
    qtbot.waitUntil(lambda: len(cards.ids) == 32)
    room = cards.viewport().rect()
    assert all(room.contains(card) for card in rects(window.page.wall))
    assert cards._painter.lines >= 2
    tell([story.submitted(r) for r in range(33, 200)])
    assert cards._painter.lines == 2, "beyond that they scroll"


@pytest.mark.parametrize("width", [200, 260, 500, 1000, 1900])
def test_cards_are_240_to_360_wide_and_fit(qtbot, tell, story, wall, width) -> None:
    tell([story.submitted(r) for r in range(1, 30)])
    wall.set_density(Density.USUAL)
    wall.resize(width, 500)
    qtbot.waitUntil(lambda: wall.width() == width)
    cards = rects(wall)
    assert max(r.right() for r in cards) < wall.cards.viewport().width()
    assert all(r.width() <= 360 for r in cards)
    assert all(r.width() >= 240 for r in cards) or width < 260
    assert not any(a.intersects(b) for i, a in enumerate(cards) for b in cards[i + 1 :])


def test_a_new_trace_begins_with_no_cards(qtbot, bridge, tell, story, wall) -> None:
    tell([story.submitted(1)])
    wall.cards.select(1)
    bridge.show(Trace())
    assert wall.cards.ids == []
    assert wall.cards.current is None
    assert wall.counts.text() == ""


@pytest.mark.parametrize("name", ["dark", "light"])
def test_a_busy_wall_is_painted_in_both_themes_and_zooms(qtbot, bridge, wall, name) -> None:
    bridge.show(Trace(synthetic_trace(streams=40, seconds=0.5, faults=0.1)))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    theme.set_theme(name)
    theme.set_zoom(1.5)
    try:
        image = wall.cards.viewport().grab().toImage()
        colors = {image.pixel(x, y) for x in range(0, image.width(), 3) for y in range(0, image.height(), 3)}
        assert QColor(theme.current().panel).rgb() in colors
        assert len(colors) > 20
    finally:
        theme.set_zoom(1.0)
        theme.set_theme("dark")


def test_cards_of_one_line_show_as_many_last_words_as_it_holds_and_those_of_two_keep_them_beside_an_error(
    bridge, tell, story, wall, monkeypatch
) -> None:
    written: dict[bool, list[str]] = {}
    write = CardPainter._write

    def noted(self: CardPainter, *given: object) -> None:
        written.setdefault(given[1] is self.mono, []).extend(given[-1])  # type: ignore[call-overload]
        write(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(CardPainter, "_write", noted)
    many = range(1, 40)
    tell([*(story.submitted(r) for r in many), *(story.step(dict.fromkeys(many, " wordly")) for _ in range(60))])
    assert wall.cards._painter.lines == 1
    wall.grab()
    written.clear()  # of what was shown while the words came
    wall.grab()
    columns = wall.cards._painter.columns
    assert {len(line) > columns - len("wordly ") for line in written[True]} == {True}
    tell([story.ended(r, FinishReason.ERROR, "the engine's process is gone " * 9) for r in many])
    wall.resize(1000, 640)
    assert wall.cards._painter.lines == 2
    written.clear()
    wall.grab()
    assert len(written[True]) == len(written[False]) > 0


@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_cards_of_one_state_tell_their_rates_all_or_none(bridge, tell, story, wall, monkeypatch, zoom) -> None:
    said: list[tuple[float, str]] = []
    say = FontFace.say

    def noted(
        self: FontFace, painter: object, x: float, baseline: float, text: str, *more: object, **how: object
    ) -> None:
        said.append((baseline, text))
        say(self, painter, x, baseline, text, *more, **how)  # type: ignore[arg-type]

    theme.set_zoom(zoom)
    many = range(1, 13)
    tell([story.submitted(r) for r in many])
    tell([story.step(dict.fromkeys(many, "a")), *(story.step({r: "a"}, seconds=0.008) for r in many)])
    monkeypatch.setattr(FontFace, "say", noted)
    wide = []
    for ended in (False, True):
        if ended:
            tell([story.ended(r, FinishReason.STOP if r % 2 else FinishReason.LENGTH) for r in many])
        for width in range(150, 320, 10):
            plan = replace(wall.cards._painter.plan, width=theme.px(width))
            painter, image = CardPainter(plan), QPixmap(400, 200)
            rates = set()
            for request in many:
                said.clear()
                device = QPainter(image)
                box = QRect(0, 0, theme.px(width), painter.height)
                painter.paint(device, box, bridge.requests[request], "", False, False, False)
                device.end()
                rates.add(any("tok/s" in text for _, text in said))
            assert len(rates) == 1, f"at {width} pixels"
            wide += [width] if rates == {True} else []
    assert wide


def test_what_a_request_waited_for_is_not_said_once_it_is_cancelled(bridge, tell, story, wall) -> None:
    tell([story.submitted(1), story.step({}), story.ended(1, FinishReason.CANCELLED)])
    says = wall.cards._painter._says(bridge.requests[1], "60 of 100 blocks are free")
    assert says == "no text"


@pytest.mark.parametrize("zoom", [1.0, 1.5, 2.0])
def test_the_first_count_is_whole_however_narrow_the_wall_and_the_rate_where_it_has_room(
    qtbot, bridge, tell, story, wall, zoom
) -> None:
    theme.set_zoom(zoom)
    tell([*(story.submitted(r) for r in range(1, 120)), story.step(dict.fromkeys(range(1, 120), "a"))])
    for wide, rate in ((264, ""), (400, "tok/s")):
        wall.resize(theme.px(wide), 400)
        wall._tell_figures()
        qtbot.waitUntil(lambda rate=rate: rate in wall.figures.text() and bool(rate) is bool(wall.figures.text()))
        assert wall.counts.text().startswith("119 running")
        for line in (wall.counts, wall.figures):
            assert line.fontMetrics().horizontalAdvance(line.text()) <= line.width()


def test_what_is_only_thought_is_quiet_and_told_by_the_state(bridge, tell, story, wall, monkeypatch) -> None:
    t, said = theme.current(), dict[str, QColor]()
    write = CardPainter._write
    monkeypatch.setattr(
        CardPainter,
        "_write",
        lambda self, painter, face, color, x, y, lines: (
            said.update(dict.fromkeys(lines, color)) or write(self, painter, face, color, x, y, lines)
        ),
    )
    wall.resize(900, 300)
    tell([story.submitted(1), story.submitted(2)])
    tell([story.step({1: word, 2: "A"}) for word in ("<think>", "\n", "Of", " kites.")])
    wall.grab()
    assert words(bridge) == {1: "thinking", 2: "decoding"}
    assert said["Of kites."] == t.secondary
    assert said["AAAA"] == t.text
    tell([story.step({1: word}) for word in (" </think>", " ", "Up", " it")])
    wall.grab()
    assert words(bridge)[1] == "decoding"
    assert said["Of kites. </think> "] == t.secondary
    assert said["Up it"] == t.text
    assert "tokens of thoughts" not in request_tooltip(bridge.requests[2])
    assert "6 tokens of thoughts\nTTFO" in request_tooltip(bridge.requests[1])
