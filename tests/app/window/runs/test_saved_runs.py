"""Saved runs in the real window."""

import contextlib
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.bench.synthetic import synthetic_trace
from app.window.main_window import MainWindow
from app.window.runs import saved_runs
from app.window.runs.saved_runs import FIRST
from engine import EngineConfig, Trace, load_trace, save_trace
from engine.bench.trace.synthetic import made_up_hour
from engine.trace import RUN_SUFFIX
from engine.trace.records import encode

WAIT = 30_000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / f"a run{RUN_SUFFIX}"
    save_trace(Trace(synthetic_trace(streams=8, tokens_per_second=500, seconds=3)), path)
    return path


@pytest.fixture
def held(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """`run` is not read before this is set; others are."""
    go = threading.Event()

    def read(path: Path, progress: Callable[[int, int], None], cancelled: threading.Event, into: Trace) -> Trace:
        if path == run:
            go.wait(WAIT / 1000)
        return load_trace(path, progress, cancelled, into)

    monkeypatch.setattr(saved_runs, "load_trace", read)
    yield go
    go.set()


def test_a_saved_run_is_shown_stepped_through_and_put_away(qtbot: QtBot, window: MainWindow, run: Path) -> None:
    window.open_path(run)
    qtbot.waitUntil(lambda: window.runs.path == run, timeout=WAIT)
    qtbot.waitUntil(lambda: len(window.bridge.requests) > 8, timeout=WAIT)
    scope = window.bridge.scope
    assert window.banner.isVisible()
    assert "saved run" in window.top_bar.status.accessibleName()
    qtbot.waitUntil(lambda: scope.steps == len(window.bridge.trace.steps), timeout=WAIT)
    qtbot.keyClick(window.page, Qt.Key.Key_F)
    qtbot.keyClick(window.page, Qt.Key.Key_Comma)
    assert scope.place == scope.steps - 2
    qtbot.keyClick(window.page, Qt.Key.Key_Period)
    assert scope.place == scope.steps - 1
    qtbot.keyClick(window.page, Qt.Key.Key_F)
    assert scope.following
    qtbot.keyClick(window.page, Qt.Key.Key_Space)
    assert scope.playing
    qtbot.keyClick(window.page, Qt.Key.Key_Space)
    assert not scope.playing
    window.page.composer.prompt.setFocus()
    qtbot.keyClicks(window.page.composer.prompt, " ,.F")
    assert not scope.playing, "in a text field they are letters"
    window.live_action.trigger()
    assert window.runs.path is None
    assert not window.bridge.requests
    assert not window.banner.isVisible()


def test_a_run_opens_where_most_was_running_with_its_own_settings_at_the_left(
    qtbot: QtBot, window: MainWindow, tmp_path: Path
) -> None:
    config = EngineConfig(mode="chunked", max_running=9, token_budget=333, prefix_caching=True)
    head, *records = synthetic_trace(streams=8, tokens_per_second=500, seconds=3)
    trace = Trace([replace(head, config=config), *records])
    path = tmp_path / f"busy{RUN_SUFFIX}"
    save_trace(trace, path)
    window.open_path(path)
    qtbot.waitUntil(lambda: window.runs.path == path, timeout=WAIT)
    qtbot.waitUntil(lambda: window.bridge.scope.step is not None, timeout=WAIT)  # it is read frame by frame
    step = window.bridge.scope.step
    assert step is not None
    assert step.rows == max(each.rows for each in trace.steps)
    qtbot.waitUntil(lambda: not window.bridge.behind, timeout=WAIT)
    assert f"{step.rows} running" in window.page.wall.counts.accessibleName()
    assert window.bridge.scope.now < trace.end, "and not at its end, where nothing is held any more"
    page = window.page
    assert page.run.isVisible()
    assert not page.batching.isVisible()
    shown = {words.objectName().removeprefix("run_"): words.text() for words in page.run.findChildren(QLabel)}
    assert shown["name"] == "busy"
    assert shown["mode"] == "chunked"
    assert shown["max_running"] == "9"
    assert shown["token_budget"] == "333 tokens"
    assert shown["prefix_caching"] == "on"
    page.run.back.click()
    assert window.runs.path is None
    assert page.batching.isVisible()
    assert not page.run.isVisible()


def test_a_file_that_is_no_run_is_named_and_what_was_shown_stays(
    qtbot: QtBot, window: MainWindow, run: Path, tmp_path: Path
) -> None:
    window.open_path(run)
    qtbot.waitUntil(lambda: window.runs.path == run, timeout=WAIT)
    torn = tmp_path / f"torn{RUN_SUFFIX}"
    torn.write_bytes(run.read_bytes()[:5000])
    window.open_path(torn)
    qtbot.waitUntil(lambda: window.banner.property("level") == "error", timeout=WAIT)
    assert "torn" in window.banner.text.text()
    assert window.runs.path == run
    window.open_path(tmp_path / f"none{RUN_SUFFIX}")
    qtbot.waitUntil(lambda: "none" in window.banner.text.text(), timeout=WAIT)


def test_reading_can_be_cancelled(qtbot: QtBot, window: MainWindow, run: Path) -> None:
    window.runs.open(run)
    window.runs.cancel()
    qtbot.waitUntil(lambda: not window.runs.reading, timeout=WAIT)
    assert window.runs.path is None
    assert not window.bridge.requests


def test_a_prompt_brings_the_engine_back(qtbot: QtBot, ready: MainWindow, run: Path) -> None:
    window = ready
    window.open_path(run)
    qtbot.waitUntil(lambda: window.runs.path == run, timeout=WAIT)
    window.page.sampling.form["max_tokens"].set(8)
    window.page.composer.prompt.setPlainText("Tell me a story about a fox.")
    window.page.composer.count.setValue(2)
    window.page.composer.send_action.trigger()
    qtbot.waitUntil(lambda: window.runs.path is None, timeout=WAIT)
    qtbot.waitUntil(lambda: len(window.bridge.requests) == 2 and not window.bridge.busy, timeout=WAIT)
    assert window.bridge.trace is window.session.trace


def test_a_prompt_while_a_run_is_read_keeps_its_requests_on_show(
    qtbot: QtBot, ready: MainWindow, run: Path, held: threading.Event
) -> None:
    window = ready
    window.open_path(run)
    window.page.sampling.form["max_tokens"].set(8)
    window.page.composer.prompt.setPlainText("Tell me a story about a fox.")
    window.page.composer.count.setValue(1)
    window.page.composer.send_action.trigger()
    qtbot.waitUntil(lambda: len(window.bridge.requests) == 1, timeout=WAIT)
    held.set()
    qtbot.waitUntil(lambda: not window.runs.reading, timeout=WAIT)
    assert window.runs.path is None
    assert window.bridge.trace is window.session.trace
    assert not window.banner.isVisible()
    qtbot.waitUntil(lambda: not window.bridge.busy, timeout=WAIT)


def test_a_run_that_is_given_up_for_another_leaves_that_ones_banner(
    qtbot: QtBot, window: MainWindow, run: Path, held: threading.Event, tmp_path: Path
) -> None:
    other = tmp_path / f"another{RUN_SUFFIX}"
    other.write_bytes(run.read_bytes())
    window.open_path(run)
    window.open_path(other)
    qtbot.waitUntil(lambda: window.runs.path == other, timeout=WAIT)
    held.set()
    qtbot.waitUntil(lambda: not window.runs.reading, timeout=WAIT)
    assert window.runs.path == other
    assert window.banner.isVisible()
    assert "another" in window.banner.title.text()


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hour") / f"long{RUN_SUFFIX}"
    save_trace(Trace(made_up_hour(1_200, 8)), path)
    return path


@pytest.fixture
def long_run(hour: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Long by the measure of these tests."""
    monkeypatch.setattr(saved_runs, "LONG", 1_000)
    monkeypatch.setattr(saved_runs, "HEAD_START", 0.3)
    return Path(shutil.copy(hour, tmp_path))


def test_a_long_run_is_looked_at_while_it_is_read(qtbot: QtBot, window: MainWindow, long_run: Path) -> None:
    told: list[tuple[int, bool]] = []
    window.runs.opened.connect(lambda: told.append((len(window.bridge.trace.records), window.runs.reading)))
    window.open_path(long_run)
    qtbot.waitUntil(lambda: window.runs.path == long_run, timeout=WAIT)
    assert window.runs.reading
    scope = window.bridge.scope
    moment = scope.moment
    assert window.banner.title.text() == "Reading long"
    qtbot.waitUntil(lambda: not window.runs.reading, timeout=WAIT)
    whole = load_trace(long_run)
    ((shown, reading),) = told
    assert reading
    assert FIRST <= shown < len(whole.records)
    trace = window.bridge.trace
    assert [encode(r) for r in trace.records] == [encode(r) for r in whole.records]
    assert trace.complete
    assert scope.moment == moment, "a person stays where they are"
    assert window.banner.title.text() == "A saved run: long"


def test_a_long_run_that_is_given_up_is_put_away(qtbot: QtBot, window: MainWindow, long_run: Path) -> None:
    window.open_path(long_run)
    qtbot.waitUntil(lambda: window.runs.path == long_run, timeout=WAIT)
    window.banner.action.click()
    assert not window.runs.reading
    assert window.runs.path is None
    assert not window.bridge.requests


def test_a_long_run_whose_end_is_damaged_is_put_away_and_named(
    qtbot: QtBot, window: MainWindow, long_run: Path
) -> None:
    with contextlib.closing(sqlite3.connect(long_run)) as db, db:
        db.execute("update records set data = 'x' where seq = (select max(seq) from records)")
    window.open_path(long_run)
    qtbot.waitUntil(lambda: window.runs.path == long_run, timeout=WAIT)
    qtbot.waitUntil(lambda: window.banner.property("level") == "error", timeout=WAIT)
    assert window.runs.path is None
    assert "long" in window.banner.text.text()
