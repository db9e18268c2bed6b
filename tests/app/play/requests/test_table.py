from itertools import product

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QSignalSpy
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from app.bench.synthetic import synthetic_trace
from app.play.requests.model import COLUMNS
from app.play.requests.table import RequestTable
from app.playback.bridge import Bridge
from engine import Trace
from engine.trace import FinishReason

COLUMN = {column.title: i for i, column in enumerate(COLUMNS)}
UP, DOWN = Qt.SortOrder.AscendingOrder, Qt.SortOrder.DescendingOrder


@pytest.fixture
def busy(qtbot: QtBot, bridge: Bridge, table: RequestTable) -> RequestTable:
    bridge.show(Trace(synthetic_trace(streams=20, tokens_per_second=2000, seconds=4, faults=0.1)))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    table._on_refresh()
    return table


def test_the_model_keeps_qts_rules(qtmodeltester: ModelTester, busy: RequestTable) -> None:
    qtmodeltester.check(busy.model)


def test_a_row_tells_a_requests_whole_story(qtbot, tell, story, table) -> None:
    tell([story.submitted(1, text="About a fox")])
    story.time = 0.4
    tell(
        [story.step({1: "Once"}), story.step({1: " upon"}), story.step({1: " a"}), story.ended(1, FinishReason.LENGTH)]
    )
    qtbot.waitUntil(lambda: table.model.rowCount() == 1)
    cells = [table.model.index(0, c).data() for c in range(len(COLUMNS))]
    assert cells == [
        "1", "About a fox", "finished · length", "4", "3", "500 ms", "100 ms", "10", "700 ms", "length",
    ]  # fmt: skip


def test_every_column_sorts_and_empty_cells_come_last(bridge, busy) -> None:
    for title, order in product(COLUMN, (UP, DOWN)):
        busy.table.sortByColumn(COLUMN[title], order)
        values = [COLUMNS[COLUMN[title]].value(bridge.requests[r]) for r in busy.model.order]
        known = [v for v in values if v is not None]
        assert values[: len(known)] == known, (title, order)
        assert known == sorted(known, reverse=order is DOWN), (title, order)
        assert sorted(busy.model.order) == sorted(bridge.requests), (title, order)


def test_the_filter_keeps_rows_with_every_word(bridge, busy) -> None:
    busy.search.setText("ERROR not finite")
    assert busy.model.order
    assert all(bridge.requests[r].reason is FinishReason.ERROR for r in busy.model.order)
    assert busy.count.text() == f"{len(busy.model.order)} of {len(bridge.requests)} requests"
    busy.search.clear()
    assert len(busy.model.order) == len(bridge.requests)


def test_thousands_of_changes_are_one_signal_a_refresh(qtbot, bridge, table) -> None:
    changed, inserted = QSignalSpy(table.model.dataChanged), QSignalSpy(table.model.rowsInserted)
    bridge.show(Trace(synthetic_trace(streams=200, tokens_per_second=30_000, seconds=1)))
    qtbot.waitUntil(lambda: bridge.behind == 0 and len(table.model.order) == len(bridge.requests) > 200)
    assert inserted.count() <= 30
    assert changed.count() <= 15


def test_a_selection_stays_on_its_request_when_rows_move(busy) -> None:
    busy.select(5)
    for title in ("Out", "TTFT", "Request"):
        busy.table.sortByColumn(COLUMN[title], DOWN)
        assert busy.selected == 5


def test_selection_goes_both_ways(qtbot, busy) -> None:
    heard: list[int] = []
    busy.bridge.scope.selected.connect(heard.append)
    busy.select(7)
    assert (heard, busy.selected) == ([], 7)
    rect = busy.table.visualRect(busy.model.index(busy.model.order.index(8), 1))
    qtbot.mouseClick(busy.table.viewport(), Qt.MouseButton.LeftButton, pos=rect.center())
    assert heard == [8]
    busy.select(None)
    assert busy.selected is None


def test_a_double_click_opens_the_transcript(qtbot, busy) -> None:
    rect = busy.table.visualRect(busy.model.index(2, 1))
    with qtbot.waitSignal(busy.request_opened) as heard:
        qtbot.mouseClick(busy.table.viewport(), Qt.MouseButton.LeftButton, pos=rect.center())
        qtbot.mouseDClick(busy.table.viewport(), Qt.MouseButton.LeftButton, pos=rect.center())
    assert heard.args == [busy.model.order[2]]


def test_copied_rows_are_tab_separated_with_titles(qtbot, busy) -> None:
    busy.table.selectAll()
    qtbot.keyClick(busy.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    lines = QGuiApplication.clipboard().text().splitlines()
    assert lines[0].split("\t") == [c.title for c in COLUMNS]
    assert len(lines) == len(busy.model.order) + 1
    assert {len(line.split("\t")) for line in lines} == {len(COLUMNS)}


@pytest.mark.parametrize("width", [320, 480, 700, 1000])
def test_the_last_column_in_sight_is_whole(qtbot, busy, width) -> None:
    busy.resize(width, 420)
    header, room = busy.table.horizontalHeader(), busy.table.viewport().width()
    ends = [header.sectionViewportPosition(i) + header.sectionSize(i) for i in range(len(COLUMNS))]
    assert room in ends
    if width >= 480:
        assert ends[COLUMN["TTFT"]] <= room


def test_column_widths_are_kept(qtbot, bridge, table) -> None:
    table.table.setColumnWidth(COLUMN["State"], 190)
    state = table.header.saveState()
    other = RequestTable(bridge)
    qtbot.addWidget(other)
    other.header.restoreState(state)
    assert other.table.columnWidth(COLUMN["State"]) == 190


def test_it_is_painted(busy) -> None:
    image = busy.grab().toImage()
    assert len({image.pixel(QPoint(x, y)) for x in range(0, 1000, 5) for y in range(0, 420, 5)}) > 20


def test_a_new_trace_empties_the_table(bridge, busy) -> None:
    bridge.show(Trace())
    assert busy.model.rowCount() == 0
    assert busy.count.text() == "0 requests"
