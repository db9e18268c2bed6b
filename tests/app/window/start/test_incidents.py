"""Errors that nobody expected are told and the window goes on; a start that ended badly is told at the next one."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer, qWarning
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QPlainTextEdit, QPushButton
from pytestqt.qtbot import QtBot

from app import storage
from app.reports.reporting import Reports, reporting
from app.window.main_window import MainWindow
from app.window.start.incidents import Incidents

WAIT = 30_000
ABORTS = """
import os, sys
from PySide6.QtCore import QTimer
from app.window.start.application import open_window
from app.window.start.incidents import Incidents
from engine import EngineConfig
def end(window):
    window.findChild(Incidents)._reports.write_facts()
    ({end})()
open_window(None, EngineConfig(), on_made=lambda window: QTimer.singleShot(0, lambda: end(window)))
"""


@pytest.fixture
def reports(window: MainWindow) -> Iterator[Reports]:
    with reporting(storage.data(), lambda: "batchscope 1.2", log_file=True) as reports:
        yield reports


@pytest.fixture
def incidents(window: MainWindow, reports: Reports, loop: asyncio.AbstractEventLoop) -> Iterator[Incidents]:
    reports.unexpected.listen(loop)
    yield Incidents(window, reports)
    loop.set_exception_handler(None)


def ended_child(end: str) -> int:
    """A window of its own process that ends so; its exit code."""
    program = ABORTS.format(end=end)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=40, check=False)
    return done.returncode


def in_slot() -> None:
    QTimer.singleShot(0, lambda: 1 // 0)


def in_task() -> None:
    async def divide() -> None:
        raise ZeroDivisionError("integer division or modulo by zero")

    asyncio.get_event_loop().create_task(divide())


def in_thread() -> None:
    threading.Thread(target=lambda: 1 // 0, name="divider").start()


@pytest.mark.parametrize("go_wrong", [in_slot, in_task, in_thread])
def test_an_error_nobody_expected_is_told_with_details_and_logged(
    qtbot: QtBot, window: MainWindow, incidents: Incidents, reports: Reports, go_wrong: object
) -> None:
    assert callable(go_wrong)
    go_wrong()
    banner = incidents.banner
    qtbot.waitUntil(banner.isVisible, timeout=WAIT)
    assert banner.title.text() == "Something went wrong: ZeroDivisionError: integer division or modulo by zero"
    assert "goes on" in banner.text.text()
    banner.copy.click()
    copied = QGuiApplication.clipboard().text()
    assert "Traceback (most recent call last)" in copied
    assert __file__ in copied
    (line,) = [line for line in reports.log.since(0) if "ZeroDivisionError" in line.text]
    assert line.level == logging.ERROR
    assert window.isVisible()


def test_a_storm_of_one_error_is_told_at_growing_counts(
    qtbot: QtBot, window: MainWindow, incidents: Incidents, reports: Reports
) -> None:
    def wrong() -> None:
        raise ValueError("again")

    for _ in range(150):
        try:
            wrong()
        except ValueError as error:
            reports.unexpected.tell(error)
    qtbot.waitUntil(lambda: "100 times" in incidents.banner.text.text())
    assert len([line for line in reports.log.since(0) if "again" in line.text]) == 3


def test_the_error_of_a_sessions_task_is_told_at_once(qtbot: QtBot, window: MainWindow, incidents: Incidents) -> None:
    async def wrong() -> None:
        raise RuntimeError("a defect")

    kept = window.session.start(wrong())  # whoever holds the task does not keep it from being told
    qtbot.waitUntil(incidents.banner.isVisible)
    assert "a defect" in incidents.banner.title.text()
    assert kept.done()


def test_the_log_has_what_qt_and_libraries_warn_of_and_its_window_finds_it(
    qtbot: QtBot, window: MainWindow, incidents: Incidents, reports: Reports
) -> None:
    qWarning("a warning of Qt")
    with warnings.catch_warnings(action="always"):
        warnings.warn("old and frail", DeprecationWarning, stacklevel=1)
    logging.getLogger("some.library").info("a remark")
    for action in window.window_actions.help.actions():
        if action.text() == "Log …":
            action.trigger()
    log = incidents._log_window
    assert log is not None
    said = {line.source: line.text for line in log.lines() if "This plugin" not in line.text}
    assert said["qt"] == "a warning of Qt"
    assert "DeprecationWarning: old and frail" in said["py.warnings"]
    assert said["some.library"] == "a remark"
    log.level.setCurrentIndex(1)
    log.level.activated.emit(1)
    assert "some.library" not in {line.source for line in log.lines()}
    log.search.setText("FRAIL")
    assert [line.source for line in log.lines()] == ["py.warnings"]
    logging.getLogger("another").warning("as frail as the first")
    qtbot.waitUntil(lambda: [line.source for line in log.lines()] == ["py.warnings", "another"])
    log.copy.click()
    assert QGuiApplication.clipboard().text() == "\n".join(map(str, log.lines()))
    written = storage.data() / "log.txt"
    log.write(str(written))
    assert written.read_text().splitlines()[-1].endswith("another: as frail as the first")
    log.write(str(storage.data() / "nowhere" / "log.txt"))
    assert "was not written" in log.empty.text()
    file = (storage.data() / "logs" / "batchscope.log").read_text()
    assert "WARNING" in file
    assert "a warning of Qt" in file
    with qtbot.waitSignal(log.destroyed):
        log.close()
    incidents.show_log()
    again = incidents._log_window
    assert again is not None
    with qtbot.waitSignal(again.destroyed):
        again.close()


@pytest.mark.parametrize(
    ("end", "code", "why"),
    [
        ("os.abort", -signal.SIGABRT, "Aborted."),
        ("lambda: os.kill(os.getpid(), 9)", -signal.SIGKILL, "it left no trace: it was killed, or the machine"),
    ],
    ids=["aborted", "killed"],
)
def test_an_end_that_nobody_asked_for_is_told_at_the_next_start(
    qtbot: QtBot, request: pytest.FixtureRequest, end: str, code: int, why: str
) -> None:
    assert ended_child(end) == code
    window: MainWindow = request.getfixturevalue("window")
    with reporting(storage.data(), lambda: "batchscope 1.2", log_file=True) as reports:
        incidents = Incidents(window, reports)
        banner = incidents.banner
        assert banner.isVisible()
        assert banner.title.text().startswith("Batchscope ended unexpectedly on")
        assert banner.text.text().startswith(why)
        (crash,) = reports.crashes
        assert "PySide6-Essentials" in crash.text
        assert str(Path.home()) not in crash.text
        banner.action.click()
        dialog = window.findChild(QDialog, "report_dialog")
        assert dialog is not None
        text = dialog.findChild(QPlainTextEdit, "report_text")
        forget = dialog.findChild(QPushButton, "report_forget")
        assert text is not None
        assert forget is not None
        assert text.toPlainText() == crash.text.rstrip("\n") or text.toPlainText() == crash.text
        forget.click()
        assert not crash.path.exists()
    with reporting(storage.data(), lambda: "batchscope 1.2", log_file=True) as reports:
        assert not reports.crashes, "it is told once"


def test_an_end_that_was_asked_for_leaves_no_report() -> None:
    assert ended_child("window.close") == 0
    assert not list((storage.data() / "crashes").iterdir())


def test_an_engine_that_aborts_leaves_a_report_and_says_where_it_was(
    qtbot: QtBot, request: pytest.FixtureRequest
) -> None:
    window: MainWindow = request.getfixturevalue("ready")
    with reporting(storage.data(), lambda: "batchscope 1.2", log_file=True) as reports:
        Incidents(window, reports)
        pid = window.session.engine_pid
        assert pid is not None
        os.kill(pid, signal.SIGSEGV)
        qtbot.waitUntil(lambda: window.banner.title.text() == "The engine has stopped", timeout=WAIT)
        window.banner.copy.click()
        assert "Fatal Python error: Segmentation fault" in QGuiApplication.clipboard().text()
        (report,) = reports.folder.glob("crash *.txt")
        assert "Fatal Python error: Segmentation fault" in report.read_text()
