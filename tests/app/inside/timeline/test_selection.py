"""A stretch of the timeline: selected with mouse and keys, its figures against the records in plain arithmetic."""

import re
from itertools import pairwise
from statistics import median

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.inside.timeline.panel import TimelinePanel
from app.inside.timeline.selection import KEYS
from app.inside.timeline.stretch import stretch
from app.inside.timeline.view import TimelineView
from engine import Engine, EngineConfig, Trace, load_workload
from engine.trace import Ended, Kind, Step

SHIFT = Qt.KeyboardModifier.ShiftModifier


@pytest.fixture(scope="module")
def trace(engine: Engine) -> Trace:
    config = EngineConfig(mode="chunked", max_running=4, token_budget=32)
    found = engine.run(load_workload("mixed-lengths", count=8), config).result()
    found.complete = True
    return found


def drag(view: TimelineView, begin: int, end: int, modifier: Qt.KeyboardModifier = SHIFT) -> None:
    y = view.area().center().y()
    QTest.mousePress(view, Qt.MouseButton.LeftButton, modifier, QPoint(begin, y))
    QTest.mouseMove(view, QPoint((begin + end) // 2, y))
    QTest.mouseMove(view, QPoint(end, y))
    QTest.mouseRelease(view, Qt.MouseButton.LeftButton, modifier, QPoint(end, y))


def test_the_figures_of_a_stretch_are_those_of_its_steps(panel: TimelinePanel, trace: Trace) -> None:
    steps, origin = trace.steps, trace.origin or 0.0
    chosen = steps[len(steps) // 4 : len(steps) // 2]
    low, high = chosen[0].started, chosen[-1].ended
    seconds = high - low
    begin, end = chosen[0].started - origin, chosen[-1].ended - origin
    found = stretch(panel.steps, panel.marks, begin, end, seconds)
    assert found.steps == len(chosen)
    assert found.rows == sum(step.rows for step in chosen)
    prompt, decoded = (
        sum(int((step.count - step.wasted)[step.kind == kind].sum()) for step in chosen)
        for kind in (Kind.PREFILL, Kind.DECODE)
    )
    assert (found.prompt, found.decoded) == (prompt, decoded)
    assert found.output == sum(len(step.token) for step in chosen)
    ended = [record for record in trace.records if isinstance(record, Ended)]
    assert found.finished == sum(low < record.time <= high for record in ended)
    ttft, gaps = [], []
    for view in trace.requests.values():
        if low < view.token_times[0] <= high:
            ttft.append(view.token_times[0] - view.submitted)
        gaps += [after - before for before, after in pairwise(view.token_times) if low < after <= high]
    assert found.ttft == (pytest.approx(median(ttft), rel=1e-5) if ttft else None)
    assert found.itl == pytest.approx(median(gaps), rel=1e-5)
    kinds = {"decode": 0.0, "both": 0.0, "prompts": 0.0}
    for step in chosen:
        has = (step.kind == Kind.PREFILL).any(), (step.kind == Kind.DECODE).any()
        kinds["both" if all(has) else "prompts" if has[0] else "decode"] += step.ended - step.started
    for name, spent in kinds.items():
        assert found.shares[name] == pytest.approx(spent / seconds, abs=0.01)
    assert sum(found.shares.values()) == pytest.approx(1)
    whole = " · ".join(found.lines())
    assert f"{len(chosen)} steps" in whole
    assert f"{prompt:,} prompt + {decoded:,} decoded tokens" in whole


def test_rows_that_waited_alike_are_kept_once(panel: TimelinePanel, trace: Trace) -> None:
    gaps = sum(len(view.token_times) - 1 for view in trace.requests.values())
    assert len(panel.marks.waits(-1.0, trace.duration + 1)[1]) == gaps
    assert len(panel.marks._gaps) < gaps / 2


def test_shift_and_drag_selects_and_escape_lets_go(panel: TimelinePanel, qtbot: QtBot) -> None:
    view = panel.view
    area, shown = view.area(), view.range()
    plain = view.grab().toImage()
    drag(view, area.left() + 600, area.left() + 200)
    assert view.selection is not None
    assert view.selection == pytest.approx((view.time_at(area.left() + 200), view.time_at(area.left() + 600)))
    assert view.range() == shown, "nothing was panned"
    panel.catch_up()
    assert re.search(r"selected · \d+ steps", view.accessibleDescription())
    marked = view.grab().toImage()
    at = QPoint(area.left() + 201, area.bottom() - 1)
    assert marked.pixel(at) != plain.pixel(at)
    QTest.keyClick(view, Qt.Key.Key_Escape)
    panel.catch_up()
    assert view.selection is None
    assert " selected · " not in view.accessibleDescription()
    drag(view, area.left() + 200, area.left() + 500, Qt.KeyboardModifier.NoModifier)
    assert view.selection is None, "without Shift it pans"


def test_shift_and_the_arrow_keys_select_step_by_step_from_the_cursor(panel: TimelinePanel, trace: Trace) -> None:
    view, steps = panel.view, [record for record in trace.records if isinstance(record, Step)]
    panel.scope.seek(steps[10].ended)
    panel.catch_up()
    for _ in range(3):
        QTest.keyClick(view, Qt.Key.Key_Right, SHIFT)
    origin = trace.origin or 0.0
    assert view.selection == pytest.approx((steps[10].ended - origin, steps[13].ended - origin))
    for _ in range(5):
        QTest.keyClick(view, Qt.Key.Key_Left, SHIFT)
    assert view.selection == pytest.approx((steps[8].ended - origin, steps[10].ended - origin))
    QTest.keyClick(view, Qt.Key.Key_0)
    low, high = view.range()
    assert low <= view.selection[0] < view.selection[1] <= high < view.extent, "0 shows what is selected"


def test_escape_is_the_selections_before_it_is_the_windows(panel: TimelinePanel, qtbot: QtBot) -> None:
    view, heard = panel.view, []
    action = QAction("Stop", panel)
    action.setShortcut("Esc")
    action.triggered.connect(lambda: heard.append(True))
    panel.addAction(action)
    with qtbot.waitActive(panel):
        panel.activateWindow()
    view.setFocus()
    view.set_selection(0.0, 0.1)
    QTest.keyClick(view, Qt.Key.Key_Escape)
    assert (view.selection, heard) == (None, [])
    QTest.keyClick(view, Qt.Key.Key_Escape)
    assert heard == [True]


def test_where_there_is_room_for_one_line_only_the_tip_has_both(panel: TimelinePanel) -> None:
    panel.resize(640, 200)
    panel.view.set_selection(0.0, panel.view.cells.end)
    panel.catch_up()
    area = panel.view.area()
    first, second = panel.view.tip(QPointF(area.left() + 20, panel.view.height() - 4)).splitlines()
    assert "rows a step" in first
    assert "finished, median TTFT" in second


def test_every_key_that_the_list_tells_is_heard_and_described(panel: TimelinePanel) -> None:
    view = panel.view
    begin, middle, end = (share * view.cells.end for share in (0.4, 0.5, 0.6))  # however long the run took
    for key in KEYS:
        assert f"{', '.join(key.keys)}: {key.words.lower()}." in view.accessibleDescription()
        for name in key.keys[: len(key.acts)]:
            view.set_range(begin, end)
            view.set_selection(begin, middle)
            before = view.range(), view.selection
            QTest.keySequence(view, QKeySequence(name))
            assert (view.range(), view.selection) != before, name


@pytest.mark.parametrize("size", [(1200, 420), (420, 325), (420, 210)])
def test_what_is_told_of_a_selection_is_never_cut(panel: TimelinePanel, size: tuple[int, int]) -> None:
    view = panel.view
    panel.resize(*size)
    QApplication.processEvents()
    plain = view.bands().words
    view.set_selection(0.0, view.cells.end)
    panel.catch_up()
    assert "…" not in "".join(view.told())
    assert "median" in " ".join(view.told())
    foot = view.bands().words
    assert foot.bottom <= view.height()
    assert foot.height >= len(view.told()) * view.face.height
    assert view.bands().ticks.bottom <= foot.top
    view.set_selection(None)
    assert view.bands().words == plain
