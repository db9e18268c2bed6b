"""Figures and animations asked for in the window."""

from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QMenu
from pytestqt.qtbot import QtBot

from app.bench.synthetic import synthetic_trace
from app.inside.timeline.panel import TimelinePanel
from app.play.page import PlayPage
from app.window.main_window import MainWindow
from engine import Trace, save_trace

WAIT = 60_000


@pytest.fixture
def shown(qtbot: QtBot, window: MainWindow, tmp_path: Path) -> Path:
    """A run that is open in the window."""
    path = tmp_path / "a run.bsrun"
    save_trace(Trace(synthetic_trace(streams=8, tokens_per_second=500, seconds=2)), path)
    window.open_path(path)
    qtbot.waitUntil(lambda: window.runs.path == path, timeout=WAIT)
    return path


def timeline(page: PlayPage) -> TimelinePanel:
    panel = page.places["timeline"].build()
    assert isinstance(panel, TimelinePanel)
    panel.catch_up()
    return panel


def asked(window: MainWindow, menu: QMenu, words: str) -> QFileDialog:
    next(action for action in menu.actions() if action.text() == words).trigger()
    dialog = window.findChild(QFileDialog, "figure_dialog")
    assert dialog is not None
    return dialog


def test_a_panel_is_written_as_a_figure_as_it_was_looked_at(qtbot: QtBot, window: MainWindow, shown: Path) -> None:
    panel = timeline(window.page)
    panel.view.set_range(0.5, 1.0)
    figures = next(menu for menu in panel.menu.findChildren(QMenu) if menu.title() == "Figure for a paper")
    dialog = asked(window, figures, "One column (85 mm) …")
    dialog.fileSelected.emit(str(shown.with_name("a.svg")))
    dialog.done(0)
    qtbot.waitUntil(lambda: window.banner.title.text() == "a.svg was written", timeout=WAIT)
    drawn = shown.with_name("a.svg").read_text(encoding="utf-8")
    assert 'aria-label="0.6 s"' in drawn
    assert 'aria-label="1.5 s"' not in drawn
    assert "<title>a run</title>" in drawn
    assert "batchscope export 'a run.bsrun'" in drawn


def test_an_animation_can_be_cancelled_and_leaves_nothing(qtbot: QtBot, window: MainWindow, shown: Path) -> None:
    pytest.importorskip("av")
    dialog = asked(window, timeline(window.page).menu, "Animation …")
    dialog.fileSelected.emit(str(shown.with_name("a.webm")))
    dialog.done(0)
    qtbot.waitUntil(lambda: " pictures" in window.banner.text.text(), timeout=WAIT)
    window.banner.action.click()
    qtbot.waitUntil(lambda: not window.exports.files.running, timeout=WAIT)
    assert [path.name for path in shown.parent.iterdir() if "webm" in path.name] == []


def test_a_wrong_ending_and_an_empty_page_are_said(qtbot: QtBot, window: MainWindow, shown: Path) -> None:
    panel = timeline(window.page)
    figures = next(menu for menu in panel.menu.findChildren(QMenu) if menu.title() == "Figure for a paper")
    dialog = asked(window, figures, "A slide (1280 × 720) …")
    dialog.fileSelected.emit(str(shown.with_name("a.doc")))
    dialog.done(0)
    assert "its name must end with .pdf, .svg, .png" in window.banner.text.text()
    window.live_action.trigger()
    next(action for action in window.export_actions if action.text() == "Export an animation …").trigger()
    assert window.banner.title.text() == "There is nothing to export"
