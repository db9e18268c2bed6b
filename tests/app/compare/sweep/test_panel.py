"""The sweep on the Compare page, over the real engine process and the demo model."""

import time
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.compare.choice import LaneChoice, RaceChoice
from app.compare.page import ComparePage
from app.compare.sweep import session
from app.compare.sweep.session import numbers
from app.session.lessee import Phase
from app.session.session import SessionState
from app.window.main_window import COMPARE, MainWindow
from engine import InvalidInput, Trace, measure
from engine.trace import Metrics, Slo

WAIT = 60_000


def sweep_page(window: MainWindow, *lanes: str, **changes: object) -> ComparePage:
    window.show_page(COMPARE)
    page = window.compare
    assert page is not None
    choice = RaceChoice("burst", tuple(LaneChoice.parse(text) for text in lanes), count=4, sizes="1, 2")
    page.setup.take(replace(choice, **changes))  # type: ignore[arg-type]
    page.sweep_panel.show_choice(page.setup.choice)
    page.setup.show_sweep(True)
    return page


def over(qtbot: QtBot, page: ComparePage) -> None:
    qtbot.waitUntil(lambda: page.sweep.phase is Phase.OVER, timeout=WAIT)


@pytest.mark.parametrize("text", ["", "1, two", "one"])
def test_numbers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="commas"):
        numbers("sizes", text, int)
    assert numbers("sizes", "1, 2,4;8", int) == (1, 2, 4, 8)


def test_a_sweep_fills_its_table_and_charts_and_says_what_to_take(
    qtbot: QtBot, ready: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(trace: Trace, slo: Slo, price: float) -> Metrics:
        time.sleep(0.1)  # as on a busy machine: the sweep is over before its last point is measured
        return measure(trace, slo, price=price)

    monkeypatch.setattr(session, "measure", late)
    page = sweep_page(ready, "static:8", "continuous")
    panel = page.sweep_panel
    qtbot.waitUntil(lambda: panel.by.height() > 0)
    assert panel.by.mapTo(panel, QPoint(0, 0)).y() < 100, "at the top, not in the middle of nothing"
    assert panel.isVisible()
    assert page.setup.race.text() == "Sweep"
    panel.start_button.click()
    qtbot.waitUntil(lambda: page.sweep.done >= 1, timeout=WAIT)
    assert page.setup.race.text() == "Stop"
    assert "of 4" in panel.status.text()
    assert not panel.empty.isVisible()
    assert "sweep" in ready.top_bar.status.accessibleName()
    over(qtbot, page)
    result = page.sweep.result
    assert result is not None
    assert not result.cancelled
    assert [row[:2] for row in panel.model.rows] == [
        [name, size] for name in ("static", "continuous") for size in ("1", "2")
    ]
    assert panel.chart.sizes.points
    assert sum("recommended" in row[-1] for row in panel.model.rows) == 2
    qtbot.wait(150)
    assert panel.status.text() == "4 of 4 points"
    assert ready.session.state is SessionState.READY
    page.sweep_export.copy("CSV")
    assert QGuiApplication.clipboard().text().startswith("lane,batch")
    page.setup.show_sweep(False)
    assert page.empty.isVisible(), "the race has a place of its own"


def test_a_sweep_is_stopped_and_keeps_what_it_measured(qtbot: QtBot, ready: MainWindow) -> None:
    page = sweep_page(ready, "continuous", sizes="1, 2, 4, 8, 16")
    page.start()
    qtbot.waitUntil(lambda: page.sweep.done >= 1, timeout=WAIT)
    ready._on_escape()
    over(qtbot, page)
    assert page.sweep_panel.status.text().startswith("stopped: ")
    assert 1 <= len(page.sweep_panel.model.rows) < 5


def test_what_cannot_be_swept_is_told(qtbot: QtBot, window: MainWindow) -> None:
    page = sweep_page(window, "sequential")
    page.start()
    qtbot.waitUntil(page.notice.isVisible, timeout=WAIT)
    assert "one request at a time" in page.notice.text.text()
    page.sweep_panel.by.setCurrentIndex(1)
    page.sweep_panel.settings.setText("fast")
    page.sweep_panel.settings.editingFinished.emit()
    assert page.setup.choice.rates == "fast"
    assert page.setup.choice.by_rate
    page.start()
    qtbot.waitUntil(lambda: "fast" in page.notice.text.text(), timeout=WAIT)
