"""Runs and races exported from the window's menu."""

import csv
import json
import re
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.bench.synthetic import synthetic_trace
from app.window.export import run_export
from app.window.main_window import MainWindow
from engine import Trace, Workload, parse_lanes, save_trace
from engine.compare import LaneRun, RaceResult, save_race
from engine.export import Source, citation, commands
from engine.trace import RUN_SUFFIX

WAIT = 30_000
NAMES = (("report", "a run.html"), ("trace for Perfetto", "a run.json"), ("table of requests", "a run.csv"))


@pytest.fixture
def shown(qtbot: QtBot, window: MainWindow, tmp_path: Path) -> Path:
    """A run that is open in the window."""
    path = tmp_path / f"a run{RUN_SUFFIX}"
    save_trace(Trace(synthetic_trace(streams=8, tokens_per_second=500, seconds=2)), path)
    window.open_path(path)
    qtbot.waitUntil(lambda: window.runs.path == path, timeout=WAIT)
    return path


def ask(window: MainWindow, words: str) -> QFileDialog | None:
    next(a for a in window.export_actions if a.text() == f"Export the {words} …").trigger()
    return window.findChild(QFileDialog, "run_export_dialog")


def test_the_run_on_show_is_exported_under_its_name(qtbot: QtBot, window: MainWindow, shown: Path) -> None:
    for words, name in NAMES:
        dialog = ask(window, words)
        assert dialog is not None
        assert Path(dialog.selectedFiles()[0]).name == name
        target = shown.with_name(name)
        dialog.fileSelected.emit(str(target))
        dialog.done(0)
        qtbot.waitUntil(lambda name=name: window.banner.title.text() == f"{name} was written", timeout=WAIT)
        qtbot.waitUntil(lambda: window.findChild(QFileDialog, "run_export_dialog") is None, timeout=WAIT)
    trace = window.bridge.trace
    events = json.loads(shown.with_name("a run.json").read_text(encoding="utf-8"))["traceEvents"]
    steps = [e for e in events if e["ph"] == "X" and re.fullmatch(r"step \d+", e["name"])]
    assert len(steps) == len(trace.steps)
    with shown.with_name("a run.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(trace.requests)


def test_the_race_on_show_is_exported_with_all_its_lanes(qtbot: QtBot, window: MainWindow, tmp_path: Path) -> None:
    lanes, told = (
        parse_lanes("static:4,continuous:4"),
        list(synthetic_trace(streams=4, tokens_per_second=200, seconds=1)),
    )
    workload = Workload.at_once("foxes", ["a fox"])
    save_race(
        RaceResult(workload, lanes, tuple(LaneRun(i, 0, Trace(told)) for i in (0, 1))), tmp_path / "a race.bsrace"
    )
    window.open_path(tmp_path / "a race.bsrace")
    compare = window.compare
    assert compare is not None
    assert ask(window, "report") is None, "it is still read"
    qtbot.waitUntil(lambda: compare.race.report is not None, timeout=WAIT)
    dialog = ask(window, "report")
    assert dialog is not None
    assert Path(dialog.selectedFiles()[0]).name == "a race.html"
    dialog.fileSelected.emit(str(tmp_path / "a race.html"))
    dialog.done(0)
    qtbot.waitUntil(lambda: window.banner.title.text() == "a race.html was written", timeout=WAIT)
    page = (tmp_path / "a race.html").read_text(encoding="utf-8")
    assert "static · 4" in page
    assert "continuous · 4" in page


def test_what_cannot_be_exported_is_said(qtbot: QtBot, window: MainWindow, shown: Path) -> None:
    window.exports.write(Source.of_trace(window.bridge.trace), shown.parent / "nowhere" / "a.csv", "steps")
    qtbot.waitUntil(lambda: window.banner.title.text() == "a.csv was not written", timeout=WAIT)
    assert "choose another place" in window.banner.text.text()
    window.live_action.trigger()
    assert ask(window, "table of steps") is None, "the engine has done nothing yet"
    assert window.banner.title.text() == "There is nothing to export"


def test_an_export_can_be_cancelled(
    qtbot: QtBot, window: MainWindow, shown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_export, "export", lambda *given: given[4].wait(WAIT / 1000) and _cancelled())
    window.exports.write(Source.of_trace(window.bridge.trace), shown.with_name("a.json"), "perfetto")
    window.exports.write(Source.of_trace(window.bridge.trace), shown.with_name("b.json"), "perfetto")
    assert window.banner.title.text() == "An export is under way"
    window.banner.action.click()
    qtbot.waitUntil(lambda: not window.exports.files.running, timeout=WAIT)
    assert not shown.with_name("a.json").exists()


def _cancelled() -> None:
    from engine.jobs import LoadCancelled

    raise LoadCancelled("the export was cancelled")


def test_how_to_make_the_run_again_and_to_cite_it_are_copied(window: MainWindow, shown: Path) -> None:
    for words, text in (("commands that make the run again", commands), ("citation of the run", citation)):
        next(a for a in window.export_actions if words in a.text()).trigger()
        given = text(Source.of_trace(window.bridge.trace, shown.stem, shown.name))
        assert QGuiApplication.clipboard().text() == (given if isinstance(given, str) else "\n".join(given))
    assert window.banner.title.text() == "A citation of the run, as BibTeX, was copied"
