"""The bar over the lanes: workloads, lanes, rules, and that they are remembered. No engine."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from app import storage
from app.compare import choice
from app.compare.choice import KEY, LaneChoice, Limits, RaceChoice, choice_of
from app.compare.lanes.editor import DEMO, FOLDER, PLAYS
from app.compare.lanes.picker import MIME
from app.compare.rules import rules_words
from app.compare.setup import OPEN, RaceSetup
from app.ui.layout.boxes import Scrolled
from app.ui.look import theme
from engine import EngineConfig, Lane, ModelSpec, Parallel, list_workloads, load_workload
from engine.compare import RACE_ORDERS, LaneRun, RaceResult, lane_name


@pytest.fixture
def setup(qtbot: QtBot) -> RaceSetup:
    menu = QMenu()
    setup = RaceSetup(menu)
    menu.setParent(setup)
    qtbot.addWidget(setup)
    setup.show()
    return setup


def names(setup: RaceSetup) -> list[str]:
    return [lane_name(c.lane) for c in setup.choice.lanes]


def pick(setup: RaceSetup, workload: str) -> None:
    setup.workload.setCurrentIndex(setup.workload.findData(workload))
    setup.workload.activated.emit(setup.workload.currentIndex())


@pytest.mark.parametrize("card", list_workloads(), ids=lambda card: card.name)
def test_a_shipped_workload_proposes_its_lanes(qtbot: QtBot, setup: RaceSetup, card: object) -> None:
    pick(setup, card.name)  # type: ignore[attr-defined]
    expected = [lane_name(LaneChoice.parse(text).lane) for text in card.suggested.lanes]  # type: ignore[attr-defined]
    assert names(setup) == expected
    assert [chip.name.text() for chip in setup.picker.chips] == expected
    assert setup.workload.toolTip() == card.description  # type: ignore[attr-defined]
    assert f"KV {card.suggested.kv_tokens:,}" in setup.rules_button.text()  # type: ignore[attr-defined]


def test_lanes_are_added_edited_moved_and_removed(qtbot: QtBot, setup: RaceSetup) -> None:
    setup.picker.set_lanes(tuple(LaneChoice.parse(text) for text in ("static:8", "continuous")))
    setup.picker.lanes_changed.emit()
    setup.picker.add.click()
    assert len(names(setup)) == 3
    editor = setup.picker.editor
    assert editor.isVisible()
    editor.form["mode"].set("dynamic")
    editor.form["max_running"].set(4)
    editor.form["longest_wait"].set(0.5)
    assert names(setup)[2] == "dynamic · 4 · waits 0.5 s"
    editor.back.click()
    assert names(setup)[1].startswith("dynamic")
    editor.form["max_running"].set(6)
    assert names(setup)[1].startswith("dynamic · 6"), "the editor follows the lane it shows"
    editor.remove.click()
    assert not editor.isVisible()
    assert names(setup) == ["static · 8", "continuous · 64"]
    qtbot.keyClick(setup.picker.chips[0].name, Qt.Key.Key_Right, Qt.KeyboardModifier.AltModifier)
    assert names(setup) == ["continuous · 64", "static · 8"]
    setup.picker.chips[0].cross.click()
    assert names(setup) == ["static · 8"]
    setup.picker.remove_lane(0)
    assert names(setup) == ["static · 8"], "a race has a lane"
    for _ in range(5):
        setup.picker.add.click()
        editor.hide()
    assert len(names(setup)) == choice.MOST_LANES
    assert not setup.picker.add.isVisible()
    assert len({lane.split(" ")[0] for lane in names(setup)}) == choice.MOST_LANES, "each adds another mode"


def test_a_race_of_the_command_line_is_set_up_with_its_own_workload_and_lanes() -> None:
    lanes = (Lane(EngineConfig("static", 2)), Lane(EngineConfig("continuous", 4)))
    run = LaneRun(1, 2)
    found = choice_of(RaceResult(load_workload("burst", count=5), lanes, (run,)), "", RaceChoice(kv_tokens=77))
    assert (found.workload, found.count, found.kv_tokens, found.repeats) == ("burst", 5, 0, 3)
    assert [each.resolved(ModelSpec("/other")) for each in found.lanes] == list(lanes)
    assert choice_of(RaceResult(load_workload("burst"), lanes, ()), "", found).count == 0
    assert choice_of(RaceResult(load_workload("burst"), lanes, ()), RaceChoice().to_json(), found) == RaceChoice()


def test_a_lane_is_split_over_devices_as_its_chip_says(qtbot: QtBot, setup: RaceSetup) -> None:
    play = ModelSpec("/models/llama", "nf4", parallel=Parallel(4))
    texts = "continuous:tp=2", "chunked:pp=2x4", "continuous", "static:8"
    setup.picker.set_lanes(tuple(map(LaneChoice.parse, texts)))
    setup.picker.lanes_changed.emit()
    said = names(setup)

    def splits() -> list[Parallel]:
        return [lane.resolved(play).spec.parallel for lane in choice.recall().lanes]

    assert splits() == [Parallel(2), Parallel(pipeline=2, micro_batches=4), Parallel(4), Parallel(4)]
    assert {lane.resolved(play).spec.quantization for lane in setup.choice.lanes} == {"nf4"}
    editor = setup.picker.editor
    for lane, shown in enumerate(("2", "2 as pipeline × 4", "as on the Play page")):
        setup.picker.edit(lane)
        assert editor.devices.currentText() == shown
        editor.form["max_running"].set(32)
        editor.hide()
    assert names(setup)[:3] == [name.replace("64", "32") for name in said[:3]], "an edit keeps what it does not touch"
    setup.picker.edit(2)
    editor.devices.setCurrentIndex(editor.devices.findData("2:sp"))
    assert names(setup)[2] == "continuous · 32 · tp 2 sp"
    assert splits()[2] == Parallel(2, sequence=True)
    editor.devices.setCurrentIndex(editor.devices.findData("1"))
    assert splits()[2] == Parallel(), "one device, whatever the Play page has"
    editor.model.setCurrentIndex(editor.model.findData(DEMO))
    assert editor.devices.findData(PLAYS) < 0
    editor.devices.setCurrentIndex(editor.devices.findData("2"))
    assert setup.choice.lanes[2].resolved(play).spec == ModelSpec("demo", parallel=Parallel(2))
    editor.hide()
    setup.picker.edit(3)
    editor.devices.setCurrentIndex(editor.devices.findData("1"))
    assert splits()[3] == Parallel(), "a mode that cannot be split has a way out"
    editor.hide()
    whole = Lane(EngineConfig("continuous"), ModelSpec("/mine", "int8", "bfloat16", "cpu", parallel=Parallel(2)))
    setup.picker.set_lanes((LaneChoice(whole, own_model=True), *setup.choice.lanes[:1]))
    setup.picker.edit(0)
    editor.form["max_running"].set(32)
    assert setup.picker.lanes[0].resolved(play).spec == whole.spec, "nothing of a race's own model is lost"
    editor.hide()


def test_a_lane_holds_as_many_heads_as_it_says_and_is_split_or_repeats_them(qtbot: QtBot, setup: RaceSetup) -> None:
    play = ModelSpec("/models/llama", "nf4", kv_heads="all")
    texts = "continuous", "continuous:kv_heads=8", "continuous:kv_heads=auto", "continuous:tp=2"
    setup.picker.set_lanes(tuple(map(LaneChoice.parse, texts)))
    setup.picker.lanes_changed.emit()
    specs = [lane.resolved(play).spec for lane in choice.recall().lanes]
    assert [(spec.kv_heads, spec.parallel.ranks) for spec in specs] == [("all", 1), (8, 1), ("auto", 1), ("auto", 2)]
    split = replace(play, kv_heads="auto", parallel=Parallel(2))
    assert [lane.resolved(split).spec.parallel.ranks for lane in setup.choice.lanes] == [2, 1, 1, 2]
    editor = setup.picker.editor
    for lane, shown in enumerate(("as on the Play page", "8", "as stored")):
        setup.picker.edit(lane)
        assert editor.kv_heads.currentText() == shown
        editor.hide()
    setup.picker.edit(0)
    editor.kv_heads.set_value("all")
    assert names(setup)[0] == "continuous · 64 · multi-head"
    editor.devices.set_value("2")
    assert "splits the heads" in editor.note.text(), "and nothing of the lane is lost"
    assert names(setup)[0] == "continuous · 64 · multi-head"


def test_the_focus_stays_among_the_lanes(qtbot: QtBot, setup: RaceSetup) -> None:
    picker = setup.picker
    picker.set_lanes(setup.choice.lanes[:1] * 3)
    picker.add.setFocus()
    qtbot.waitUntil(lambda: setup.focusWidget() is picker.add)
    qtbot.keyClick(picker.add, Qt.Key.Key_Space)
    assert not picker.add.isVisible()
    picker.editor.hide()
    assert setup.focusWidget() is picker.chips[3].name, "not on whatever comes after a button that is gone"
    picker.edit(3)
    picker.editor.form["max_running"].set(7)
    assert setup.focusWidget() is picker.chips[3].name
    picker.editor.hide()
    picker.remove_lane(3)
    assert setup.focusWidget() is picker.chips[2].name


def test_esc_takes_a_lane_that_was_just_added_away_again(qtbot: QtBot, setup: RaceSetup) -> None:
    before, picker = names(setup), setup.picker
    picker.add.click()
    assert len(names(setup)) == len(before) + 1
    qtbot.keyClick(picker.editor, Qt.Key.Key_Escape)
    assert names(setup) == before
    assert not picker.editor.isVisible()
    picker.edit(0)
    qtbot.keyClick(picker.editor, Qt.Key.Key_Escape)
    assert names(setup) == before, "a lane that was there stays"


def test_graphs_switched_off_stay_so_until_they_are_switched_on(qtbot: QtBot, setup: RaceSetup) -> None:
    setup.picker.set_lanes((LaneChoice.parse("continuous:graphs=no"), LaneChoice.parse("static:8")))
    setup.picker.lanes_changed.emit()
    assert [c.lane.config.cuda_graphs for c in choice.recall().lanes] == [False, True]
    setup.picker.chips[0].name.click()
    form = setup.picker.editor.form
    graphs = form["cuda_graphs"].control
    assert graphs.isVisible()
    assert not form["cuda_graphs"].get()
    form["max_running"].set(4)
    assert names(setup)[0] == "continuous · 4 · no graphs"
    form["cuda_graphs"].set(True)
    assert names(setup)[0] == "continuous · 4"
    form["mode"].set("static")
    assert not graphs.isVisible()
    setup.picker.editor.hide()


def test_a_lane_with_blocks_may_search_with_beams(qtbot: QtBot, setup: RaceSetup) -> None:
    setup.picker.set_lanes((LaneChoice.parse("continuous:beams=4"), LaneChoice.parse("static:8")))
    setup.picker.lanes_changed.emit()
    assert names(setup)[0] == "continuous · 64 · 4 beams"
    assert [choice.lane.beams for choice in choice.recall().lanes] == [4, 1]
    setup.picker.chips[0].name.click()
    editor = setup.picker.editor
    assert (editor.beams.isVisible(), editor.beams.value()) == (True, 4)
    editor.beams.setValue(2)
    assert names(setup)[0] == "continuous · 64 · 2 beams"
    editor.form["mode"].set("static")
    assert not editor.beams.isVisible()
    assert names(setup)[0] == "static · 64"
    editor.hide()


@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_a_lane_with_many_settings_fits_the_screen_and_can_be_scrolled(
    qtbot: QtBot, setup: RaceSetup, zoom: float
) -> None:
    theme.set_zoom(zoom)
    theme.set_theme("dark")
    text = "chunked:8:prefix:admission=lpm:speculation=draft:model=./some-folder"
    setup.picker.set_lanes((LaneChoice.parse(text), LaneChoice.parse("static:8:admission=sjf")))
    setup.picker.chips[0].name.click()
    editor = setup.picker.editor
    scroll = editor.findChild(Scrolled)
    assert isinstance(scroll, Scrolled)
    screen = editor.screen().availableGeometry()
    assert screen.contains(editor.geometry())
    assert (scroll.verticalScrollBar().maximum() > 0) is (zoom == 2.0)
    scroll.ensureWidgetVisible(editor.remove)
    lowest = editor.remove.mapTo(editor, editor.remove.rect().bottomLeft())
    assert editor.rect().contains(lowest)
    editor.hide()
    setup.picker.chips[1].name.click()
    assert editor.height() < screen.height()
    qtbot.waitUntil(lambda: scroll.verticalScrollBar().maximum() == 0)
    editor.hide()


def test_a_chip_is_dropped_in_another_place(qtbot: QtBot, setup: RaceSetup) -> None:
    pick(setup, "burst")
    setup.resize(1600, setup.sizeHint().height())
    qtbot.waitUntil(lambda: setup.picker.chips[2].x() > setup.picker.chips[1].x() > 0)
    before = names(setup)
    data = QMimeData()
    data.setData(MIME, b"0")
    last = setup.picker.chips[2].geometry()
    event = QDropEvent(
        QPointF(last.right() - 2, last.center().y()), Qt.DropAction.MoveAction, data, Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )  # fmt: skip
    setup.picker.dropEvent(event)
    assert names(setup) == [before[1], before[2], before[0]]


def test_a_lane_can_quantize_the_models_of_the_play_page_its_own_way(qtbot: QtBot, setup: RaceSetup) -> None:
    setup.picker.edit(0)
    editor, play = setup.picker.editor, ModelSpec("/models/llama", "nf4", device="cpu")
    assert editor.quantization.currentText() == "as on the Play page"
    for chosen in ("int8", "none"):
        editor.quantization.setCurrentIndex(editor.quantization.findData(chosen))
        assert setup.choice.lanes[0].resolved(play).spec == replace(play, quantization=chosen)
    assert RaceChoice.from_json(setup.choice.to_json()) == setup.choice
    editor.model.setCurrentIndex(editor.model.findData(DEMO))
    assert setup.choice.lanes[0].resolved(play).spec == ModelSpec("demo")
    editor.model.setCurrentIndex(editor.model.findData(PLAYS))
    editor.quantization.setCurrentIndex(0)
    assert setup.choice.lanes[0].resolved(play).spec == play


def test_a_lane_takes_the_models_of_the_play_page_or_its_own(qtbot: QtBot, setup: RaceSetup) -> None:
    setup.picker.edit(0)
    editor = setup.picker.editor
    play = ModelSpec("/models/llama")
    assert setup.choice.lanes[0].resolved(play).spec == play
    editor.model.setCurrentIndex(editor.model.findData(FOLDER))
    assert "Name a model" in editor.note.text()
    editor.path.setText("owner/name")
    editor.path.editingFinished.emit()
    assert editor.note.text() == ""
    assert setup.choice.lanes[0].resolved(play).spec == ModelSpec("owner/name")
    editor.model.setCurrentIndex(editor.model.findData(DEMO))
    assert setup.choice.lanes[0].resolved(play).spec == ModelSpec("demo")
    editor.model.setCurrentIndex(editor.model.findData(PLAYS))
    assert setup.choice.lanes[0].resolved(play).spec == play
    editor.hide()


def test_values_of_a_lane_that_do_not_go_together_are_told_and_not_taken(qtbot: QtBot, setup: RaceSetup) -> None:
    setup.picker.set_lanes((LaneChoice.parse("chunked:64"),))
    setup.picker.lanes_changed.emit()
    setup.picker.edit(0)
    editor = setup.picker.editor
    editor.form["token_budget"].set(8)
    assert "token_budget=8" in editor.note.text()
    assert setup.choice.lanes[0].lane.config.token_budget == 2048
    editor.hide()


def test_the_choice_is_remembered(qtbot: QtBot, setup: RaceSetup) -> None:
    pick(setup, "trickle")
    setup.picker.remove_lane(1)
    rules = setup.rules
    rules.form["kv_tokens"].set(4096)
    rules.form["count"].set(12)
    rules.form["repeats"].set(3)
    rules.form["order"].set([*RACE_ORDERS][1])
    rules.limits["ttft"].set(0.25)
    again = RaceSetup(QMenu(setup))
    qtbot.addWidget(again)
    assert again.choice == setup.choice
    assert again.choice.workload == "trickle"
    assert (again.choice.kv_tokens, again.choice.count, again.choice.repeats) == (4096, 12, 3)
    assert again.choice.limits == Limits(ttft=0.25)
    assert again.choice.limits.slo.ttft == 0.25
    assert again.rules.form["kv_tokens"].get() == 4096
    assert rules_words(again.choice, 8192) == "12 prompts · 3 repeats · KV 4,096 tokens · SLO"


@pytest.mark.parametrize("kept", ["", "{}", "[1]", "nonsense", '{"workload": "x", "lanes": [{"lane": "?"}]}'])
def test_what_another_version_kept_is_passed_by(kept: str) -> None:
    storage.settings().setValue(KEY, kept)
    assert choice.recall() == RaceChoice()


def test_a_file_is_a_workload_too(qtbot: QtBot, setup: RaceSetup, tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    setup.open_file(path)
    assert setup.choice.workload == str(path)
    assert setup.workload.currentText() == "mine.txt"
    assert setup.card is None
    pick(setup, "burst")
    assert setup.choice.workload == "burst"
    assert setup.workload.findData(OPEN) >= 0


def test_the_bar_takes_two_lines_where_it_is_narrow(qtbot: QtBot, setup: RaceSetup) -> None:
    setup.resize(1500, 60)
    qtbot.waitUntil(lambda: setup.picker.y() < setup.race.height())
    setup.resize(900, 120)
    qtbot.waitUntil(lambda: setup.picker.y() >= setup.race.height())
