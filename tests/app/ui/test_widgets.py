"""The small shared widgets, and the panels that only hold values."""

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QRect, QSignalBlocker
from PySide6.QtGui import QAction, QColor, QGuiApplication, QPainter, Qt, QTextDocument
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit, QStyle, QStyleOptionSlider, QToolTip, QWidget
from pytestqt.qtbot import QtBot

from app.desktop.command_palette import CommandPalette, match_score
from app.play.setup.batching import BatchingPanel
from app.play.setup.sampling import OWN, PRESETS, SamplingPanel
from app.playback.bridge import Bridge
from app.sampling.typed_texts import as_typed, typed_texts
from app.session.session import Session
from app.ui.banner import Banner
from app.ui.controls import DropDown, PowerOfTwo, Slider, SliderValue
from app.ui.labels import Note
from app.ui.layout.boxes import column, held
from app.ui.line import Line, Parts
from app.ui.look import theme
from app.ui.painted import EmptyWords, Painted, fitting
from app.ui.prompt_edit import PromptEdit
from app.ui.tips import show_tip
from app.words import bytes_words
from engine import EngineConfig, InvalidInput


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (999, "999 B"), (1536, "1.5 KB"), (405 * 2**20, "405 MB"), (24 * 2**30, "24 GB")]
)
def test_bytes_have_three_figures(count: int, words: str) -> None:
    assert bytes_words(count) == words


def test_a_note_takes_no_room_while_it_has_nothing_to_say(qtbot: QtBot) -> None:
    note = Note("note")
    qtbot.addWidget(note)
    note.say("something")
    assert note.isVisible()
    note.say("")
    assert not note.isVisible()


def test_a_line_takes_the_longest_wording_that_it_has_room_for(qtbot: QtBot) -> None:
    line, wordings = Line("line"), ("a step of the engine, told at length", "step 12 of the run", "step 12", "12")
    qtbot.addWidget(line)
    line.say(*wordings)
    line.show()
    for words in wordings:
        line.resize(line.fontMetrics().horizontalAdvance(words), 20)
        assert line.text() == words
        assert line.accessibleName() == wordings[0]
        assert line.toolTip() == ("" if words == wordings[0] else wordings[0])
    line.resize(line.fontMetrics().horizontalAdvance("12345…"), 20)
    line.say("none of them fits", "1234567890")
    assert line.text().endswith("…")
    assert "1234567890".startswith(line.text()[:-1])


@pytest.mark.parametrize("focused", [False, True])
def test_the_handle_of_a_slider_is_round_at_every_zoom(qtbot: QtBot, focused: bool) -> None:
    slider = Slider("slider", "a slider", 100)
    qtbot.addWidget(slider)
    slider.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    slider.setValue(50)
    slider.show()
    if focused:
        slider.activateWindow()
        slider.setFocus()
        qtbot.waitUntil(slider.hasFocus)
    for zoom in theme.ZOOMS:
        theme.set_zoom(zoom)
        slider.resize(theme.px(200), theme.px(24))
        option = QStyleOptionSlider()
        slider.initStyleOption(option)
        parts, part = slider.style(), QStyle.SubControl.SC_SliderHandle
        box = parts.subControlRect(QStyle.ComplexControl.CC_Slider, option, part, slider)
        picture = slider.grab().toImage()
        bare = picture.pixelColor(0, 0)
        for corner in (box.topLeft(), box.topRight(), box.bottomLeft(), box.bottomRight()):
            assert picture.pixelColor(corner) == bare, f"square at {zoom:.0%}"


def test_what_matters_most_is_the_last_to_give_way(qtbot: QtBot) -> None:
    line, parts = Parts("line"), ["0 running", "0 waiting", "16 done", "1 cancelled"]
    qtbot.addWidget(line)
    line.show()
    line.say_parts(parts, parts[2:])
    for shown in (parts, parts[2:], parts[2:3], []):
        words = line.SEPARATOR.join(shown)
        line.resize(line.fontMetrics().horizontalAdvance(words) + 4, 20)
        assert line.text() == words
    assert line.accessibleName() == ", ".join(parts)


def test_an_empty_field_says_what_it_has_room_for(qtbot: QtBot) -> None:
    field, hints = PromptEdit("field", 1, 4), ("Write a prompt. Enter sends it.", "Write a prompt.", "Write")
    qtbot.addWidget(field)
    field.hint(*hints)
    field.show()
    for zoom in (1.0, 2.0):
        theme.set_zoom(zoom)
        for hint in hints:
            field.resize(field.fontMetrics().horizontalAdvance(hint) + 4 * field.frameWidth() + 24, field.height())
            qtbot.waitUntil(lambda hint=hint: field.placeholderText() == hint)  # type: ignore[misc]
    assert field.accessibleDescription() == hints[0]


def test_a_power_of_two_doubles_and_halves(qtbot: QtBot) -> None:
    number = PowerOfTwo("block", 1, 256, 16)
    qtbot.addWidget(number)
    number.stepBy(2)
    assert number.value() == 64
    number.stepBy(-3)
    assert number.value() == 8


def test_a_slider_and_its_number_follow_each_other(qtbot: QtBot) -> None:
    both = SliderValue("temperature", "Temperature", 0, 2, 0.8)
    qtbot.addWidget(both)
    both.slider.setValue(both.slider.maximum())
    assert both.value() == 2
    both.box.setValue(0.37)
    assert both.value() == 0.37, "a typed number is not rounded to the slider's steps"
    assert both.slider.value() == round(both.STEPS * 0.37 / 2)


def test_a_logarithmic_slider_gives_small_numbers_room(qtbot: QtBot) -> None:
    both = SliderValue("tokens", "Max tokens", 1, 4096, 64, step=1, logarithmic=True)
    qtbot.addWidget(both)
    assert both.slider.value() == both.STEPS // 2


def test_a_banner_does_what_it_offers_once_and_copies_details(qtbot: QtBot) -> None:
    banner, done = Banner(), []
    qtbot.addWidget(banner)
    banner.tell(
        "error", "It stopped", "Texts were kept.", details="signal 9", action=("Restart", lambda: done.append(1))
    )
    assert banner.isVisible()
    banner.copy.click()
    assert QGuiApplication.clipboard().text() == "It stopped\nTexts were kept.\n\nsignal 9"
    banner.action.click()
    assert done == [1]
    assert not banner.isVisible()


def test_a_banner_of_what_is_over_goes_by_itself_and_one_that_asks_stays(qtbot: QtBot) -> None:
    banner, edit = Banner(), QLineEdit()
    window = held(column(edit, banner))
    qtbot.addWidget(window)
    window.move(400, 400)  # away from the pointer
    window.show()
    edit.setFocus()
    banner._passes.setInterval(1)
    banner.tell("info", "It is done", "", passes=True)
    qtbot.waitUntil(lambda: not banner.isVisible())
    banner.tell("info", "It is done", "", passes=True)
    banner.pass_by()
    assert not banner.isVisible()
    banner.tell("warning", "It runs", "")
    banner.pass_by()
    assert banner.isVisible()
    assert not banner._passes.isActive()


def test_an_empty_panel_says_as_many_sentences_as_have_room(qtbot: QtBot) -> None:
    face, words = EmptyWords.empty, "Nothing has run yet. Send a prompt: it shows here."
    line, wide, two = face.metrics.lineSpacing(), face.width(words), "Nothing has run yet. Send a prompt."
    assert fitting(words, face, wide + 1, line) == [words]
    assert fitting(words, face, face.width(two) + 1, line) == [two]
    assert fitting(words, face, 0.5 * wide, line) == ["Nothing has run yet."]
    assert " ".join(fitting(words, face, 0.5 * wide, 4 * line)) == words
    assert fitting(words, face, 0.2 * wide, line)[0].endswith("…")
    assert fitting(words, face, wide, 0.3 * line) == [], "no half of a line"
    empty = EmptyWords("empty")
    qtbot.addWidget(empty)
    empty.say(words)
    for width, unsaid in ((2 * wide, ""), (0.7 * wide, words)):
        empty.resize(round(width), round(line + 2))
        empty.grab()
        assert empty._unsaid == unsaid, "the tip has what has no room"


def test_a_drop_down_shows_its_item_whole_or_with_an_ellipsis(qtbot: QtBot) -> None:
    items = [(name, name) for name in ("Storyteller", "A name that nobody would give to anything that he likes")]
    for most, zoom in ((0, 1.0), (220, 1.0), (220, 1.5), (220, 2.0)):
        theme.set_zoom(zoom)
        choice = DropDown("choice", items, most=most)
        qtbot.addWidget(choice)
        choice.resize(choice.sizeHint())
        assert choice.words == "Storyteller"
        choice.setCurrentIndex(1)
        assert choice.words.endswith("…")
        assert choice.width() <= theme.px(220)
        choice.grab()


@pytest.mark.parametrize(
    ("words", "better", "worse"),
    [
        ("th", "Theme of the system", "Unload the model"),
        ("dark", "Dark theme", "A dark day"),
        ("fs", "Full screen", "Offer sizes"),
    ],
)
def test_the_palette_prefers_words_that_begin_so(words: str, better: str, worse: str) -> None:
    first, second = match_score(words, better), match_score(words, worse)
    assert first is not None
    assert second is None or first < second


def test_the_palette_runs_what_is_chosen_and_gives_the_focus_back(qtbot: QtBot) -> None:
    host = QWidget()
    qtbot.addWidget(host)
    host.resize(800, 600)
    done: list[str] = []
    actions = []
    for name in ("Larger", "Light theme", "Quit"):
        action = QAction(name, host)
        action.triggered.connect(lambda checked=False, name=name: done.append(name))
        actions.append(action)
    actions[0].setEnabled(False)
    palette = CommandPalette(host)
    host.show()
    palette.open(actions, None)
    qtbot.keyClicks(palette.search, "l")
    assert palette.model.rowCount() == 2
    qtbot.keyClick(palette.search, Qt.Key.Key_Return)
    assert done == ["Light theme"], "what cannot be done now is not chosen"
    assert not palette.isVisible()
    palette.open(actions, None)
    qtbot.keyClick(palette.search, Qt.Key.Key_Down)
    qtbot.keyClick(palette.search, Qt.Key.Key_Return)
    assert done == ["Light theme", "Quit"]
    palette.open(actions, None)
    qtbot.keyClick(palette.search, Qt.Key.Key_Escape)
    assert not palette.isVisible()


@pytest.mark.parametrize("stop", [(), ("The end",), ("a", "\n\n"), ("a, b", "c"), ("[x",)])
def test_stop_strings_are_read_as_they_are_shown(stop: tuple[str, ...]) -> None:
    assert typed_texts(as_typed(stop), "stop") == stop


def test_a_broken_list_of_stop_strings_is_refused() -> None:
    with pytest.raises(InvalidInput, match="stop"):
        typed_texts('["a"', "stop")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_sets_every_value(qtbot: QtBot, name: str) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    panel.form["top_k"].set(7)
    assert panel.preset.currentText() == OWN
    panel.preset.setCurrentIndex(panel.preset.findText(name))
    panel.preset.activated.emit(panel.preset.currentIndex())
    assert panel.params() == PRESETS[name]
    assert panel.preset.currentText() == name
    assert panel.preset.findText(OWN) < 0


def test_sampling_is_remembered_by_the_next_window(qtbot: QtBot) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    panel.form["temperature"].set(0.33)
    panel.form["stop"].set(("The end",))
    panel.form["seed"].set(5)
    following = SamplingPanel()
    qtbot.addWidget(following)
    assert following.params() == panel.params()
    assert following.params().seed == 5
    assert following.params().stop == ("The end",)


def test_recording_alternatives_is_remembered_and_no_preset_forgets_it(qtbot: QtBot) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    assert panel.params().logprobs == 0
    panel.form["logprobs"].set(7)
    panel.preset.setCurrentIndex(panel.preset.findText("greedy"))
    panel.preset.activated.emit(panel.preset.currentIndex())
    assert panel.params() == replace(PRESETS["greedy"], logprobs=7)
    assert panel.preset.currentText() == "greedy"
    following = SamplingPanel()
    qtbot.addWidget(following)
    assert following.params().logprobs == 7


def test_wheel_turns_over_a_panel_change_no_value(qtbot: QtBot) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    panel.show()
    assert panel.form["top_k"].control.focusPolicy() == Qt.FocusPolicy.StrongFocus
    temperature = panel.form["temperature"].control
    assert isinstance(temperature, SliderValue)
    assert temperature.box.focusPolicy() == Qt.FocusPolicy.StrongFocus


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("recompute", set()),
        ("sequential", set()),
        ("static", {"max_running", "delivery"}),
        ("dynamic", {"max_running", "longest_wait", "delivery"}),
        ("continuous-padded", {"max_running", "join_every", "token_budget"}),
        ("continuous", {"max_running", "join_every", "token_budget", "prefix_caching", "preemption"}),
        ("chunked", {"max_running", "join_every", "token_budget", "prefix_caching", "preemption"}),
    ],
)
def test_a_mode_shows_the_settings_that_matter_to_it(
    qtbot: QtBot, session: Session, bridge: Bridge, mode: str, shown: set[str]
) -> None:
    panel = BatchingPanel(session, bridge)
    qtbot.addWidget(panel)
    panel.show()
    panel.form["mode"].set(mode)
    names = ("max_running", "longest_wait", "join_every", "token_budget", "delivery", "prefix_caching", "preemption")
    assert {name for name in names if panel.form[name].control.isVisible()} == shown
    assert panel.form.sentence.text()[0].isupper()


def test_switching_modes_keeps_the_values_of_the_others(qtbot: QtBot, session: Session, bridge: Bridge) -> None:
    panel = BatchingPanel(session, bridge)
    qtbot.addWidget(panel)
    form = panel.form
    form["prefix_caching"].set(True)
    form["token_budget"].set(512)
    assert panel.config() == EngineConfig(prefix_caching=True, token_budget=512)
    form["mode"].set("static")
    form["delivery"].set("batch")
    form["max_running"].set(4000)
    assert panel.config() == EngineConfig("static", max_running=4000, token_budget=4000, delivery="batch")
    qtbot.waitUntil(lambda: session.config.mode == "static")
    form["max_running"].set(8)
    form["mode"].set("chunked")
    assert panel.config() == EngineConfig("chunked", max_running=8, token_budget=512, prefix_caching=True)
    form["mode"].set("dynamic")
    assert panel.config().delivery == "batch"


def offered(box: DropDown, value: object) -> bool:
    """Whether the arrow keys reach an item from the one above it."""
    at = box.findData(value)
    if at == box.currentIndex():
        return True
    before = box.currentIndex()
    with QSignalBlocker(box):
        box.setCurrentIndex(at - 1)
        QTest.keyClick(box, Qt.Key.Key_Down)
        found = box.currentIndex() == at
        box.setCurrentIndex(before)
    return found


def test_to_admit_by_cached_prefixes_and_to_cache_them_go_together(
    qtbot: QtBot, session: Session, bridge: Bridge
) -> None:
    panel = BatchingPanel(session, bridge)
    qtbot.addWidget(panel)
    form = panel.form
    form["admission"].set("lpm")
    assert panel.config() == EngineConfig(prefix_caching=True, admission="lpm"), "switched on by what needs it"
    form["prefix_caching"].set(False)
    assert panel.config() == EngineConfig(), "which ends without it"
    form["admission"].set("lpm")
    box = form["admission"].control
    assert isinstance(box, DropDown)
    assert offered(box, "lpm")
    form["mode"].set("static")
    assert panel.config() == EngineConfig("static")
    assert not offered(box, "lpm")
    form["admission"].set("sjf")
    assert panel.config() == EngineConfig("static", admission="sjf")
    form["mode"].set("chunked")
    assert panel.config() == EngineConfig("chunked", prefix_caching=True, admission="sjf")
    assert not panel.note.text()


def test_several_samples_are_for_modes_with_blocks(qtbot: QtBot) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    panel.form["n"].set(4)
    assert panel.params().n == 4
    panel.set_mode("static")
    assert panel.params().n == 1
    assert "static has no blocks" in panel.samples_note.text()
    panel.set_mode("chunked")
    assert panel.params().n == 4
    assert panel.samples_note.text() == ""


def test_beams_switch_off_what_they_do_not_heed(qtbot: QtBot) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    panel.form["temperature"].set(0.9)
    panel.form["n"].set(2)
    panel.form["repetition_penalty"].set(1.2)
    panel.form["beam_width"].set(4)
    panel.form["length_penalty"].set(0.5)
    panel.form["early_stopping"].set("never")
    told = panel.params()
    assert (told.beam_width, told.length_penalty, told.early_stopping) == (4, 0.5, "never")
    assert (told.n, told.repetition_penalty, told.temperature) == (1, 1.0, 0.0)
    assert not panel.form["temperature"].control.isEnabled()
    assert panel.form["length_penalty"].control.isEnabled()
    assert not panel.output.isEnabled(), "a grammar goes with drawing one token after the other"
    assert "nothing is drawn" in panel.samples_note.text()
    again = SamplingPanel()
    qtbot.addWidget(again)
    assert again.params() == told
    assert again.form["temperature"].get() == 0.9, "what is idle is remembered too"
    again.set_mode("static")
    assert again.params().beam_width == 1
    assert again.params().temperature == 0.9
    assert again.form["temperature"].control.isEnabled()
    assert not again.form["beam_width"].control.isEnabled()
    again.form["n"].set(1)
    again.set_mode("chunked")
    again.form["beam_width"].set(1)
    assert again.form["temperature"].control.isEnabled()
    assert again.output.isEnabled()
    assert not again.form["early_stopping"].control.isEnabled()


def test_values_that_do_not_go_together_are_told(qtbot: QtBot, session: Session, bridge: Bridge) -> None:
    panel = BatchingPanel(session, bridge)
    qtbot.addWidget(panel)
    panel.show()
    panel.form["token_budget"].set(8)
    assert "token_budget=8" in panel.note.text()
    assert session.config == EngineConfig()
    panel.form["max_running"].set(8)
    qtbot.waitUntil(lambda: session.config.token_budget == 8)
    assert not panel.note.isVisible()


class Brushed(Painted):
    """Leaves its last brush to whoever paints next."""

    focus_ring = 0.0

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        painter.fillRect(dirty, QColor("#202020"))
        painter.setBrush(QColor("#ff0000"))


def test_the_ring_of_the_focus_is_empty(qtbot: QtBot) -> None:
    widget, other = Brushed(focus=True), QLineEdit()
    for each in (other, widget):
        qtbot.addWidget(each)
        each.show()
    widget.resize(60, 40)
    widget.setFocus()
    widget.activateWindow()
    qtbot.waitUntil(widget.hasFocus)
    drawn = widget.grab().toImage()
    assert drawn.pixelColor(30, 20) == QColor("#202020")
    assert drawn.pixelColor(30, 0) != QColor("#202020")


def test_a_click_on_a_slider_goes_where_it_points(qtbot: QtBot) -> None:
    slider = Slider("place", "Place", 1000)
    qtbot.addWidget(slider)
    slider.resize(400, 24)
    slider.show()
    qtbot.mouseClick(slider, Qt.MouseButton.LeftButton, pos=QPoint(300, 12))
    assert abs(slider.value() - 750) < 30
    qtbot.mouseClick(slider, Qt.MouseButton.LeftButton, pos=QPoint(100, 12))
    assert abs(slider.value() - 250) < 30


def test_a_tip_says_a_prompt_that_looks_like_html_to_the_letter(qtbot: QtBot) -> None:
    widget = QWidget()
    qtbot.addWidget(widget)
    for words in ("request 3 · 12 tokens", "<h1>a & b</h1> <img src='x'>\nsecond line"):
        show_tip(QPoint(5, 5), words, widget)
        said = QTextDocument()
        (said.setHtml if Qt.mightBeRichText(QToolTip.text()) else said.setPlainText)(QToolTip.text())
        assert said.toPlainText() == words
