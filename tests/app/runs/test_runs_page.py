"""The Runs page in the real window: files found, read, searched, marked, deleted, compared, and all of it undone."""

import json
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit
from pytestqt.qtbot import QtBot

from app import storage
from app.bench.synthetic_lanes import lane_trace
from app.preferences import RUNS_LIMIT
from app.runs.entry import detail_words
from app.runs.foot import GB
from app.runs.index import RunIndex
from app.runs.library import scan
from app.runs.page import RunsPage
from app.runs.rows import COLUMNS, RUN
from app.runs.tag_sheet import TagSheet
from app.ui.look import theme
from app.window.main_window import COMPARE, PLAY, RUNS, MainWindow
from engine import Trace, measure, save_trace
from engine.trace import TraceWriter

WAIT = 60_000  # the child that reads is of low priority
MODES = ("static", "continuous", "chunked")


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    return {mode: Trace(lane_trace(mode, slots=4, requests=8, output=(4, 16))) for mode in MODES}


@pytest.fixture
def folder(own_settings: Path, traces: dict[str, Trace]) -> Path:
    """Three runs of the same prompts, the chunked one the newest."""
    for age, (mode, trace) in enumerate(reversed(traces.items())):
        head, *records = trace.records
        made = replace(head, created=1e9 - 100 * age)
        save_trace(Trace([made, *records]), storage.runs() / f"2026-11-20 10.00.0{age} {mode}.bsrun")
    return storage.runs()


@pytest.fixture
def page(qtbot: QtBot, folder: Path, window: MainWindow) -> RunsPage:
    window.resize(1280, 720)
    window.show_page(RUNS)
    page = window.pages.current
    assert isinstance(page, RunsPage)
    qtbot.waitUntil(lambda: read(page), timeout=WAIT)
    return page


def read(page: RunsPage) -> bool:
    return bool(page.library.entries) and not page.library.unread and not page.library.reading


def titles(page: RunsPage) -> list[str]:
    rows = (page.rows.row(place) for place in range(page.rows.rowCount()))
    return [row.title for row in rows if row is not None]


def pick(page: RunsPage, *names: str) -> None:
    page.choose(*(entry.path for entry in page.library.entries.values() if entry.title in names))
    assert {entry.title for entry in page.chosen} == set(names)


def path_of(page: RunsPage, title: str) -> Path:
    return next(path for path, entry in page.library.entries.items() if entry.title == title)


def test_every_run_is_read_once_and_sorted_and_found(qtbot: QtBot, page: RunsPage, folder: Path) -> None:
    qtbot.waitUntil(lambda: titles(page) == ["chunked", "continuous", "static"], timeout=WAIT)
    keys = {action.shortcut().toString() for action in page.actions()}
    assert {"Ctrl+K", "Ctrl+T", "Ctrl+B", "Ctrl+F", "Ctrl+R"} <= keys
    assert QApplication.focusWidget() is page.table
    entry = page.library.entries[path_of(page, "static")]
    assert entry.best is not None
    assert (entry.best.requests, entry.best.mode) == (8, "static")
    page.table.sortByColumn(6, Qt.SortOrder.AscendingOrder)
    assert titles(page)[0] == "static", "the slowest first"
    page.search.setText("mode:chunked")
    assert titles(page) == ["chunked"]
    page.search.setText("nothing like this")
    assert page.nothing.isVisible()
    page.search.clear()
    assert page.table.isVisible()
    assert "3 runs" in page.foot.words.accessibleName()
    index = page.rows.index(0, RUN)
    assert "static" in str(index.data(Qt.ItemDataRole.AccessibleTextRole))
    picture = page.table.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    colors = {theme.request_color(request).name() for request in range(8)}
    strip = {picture.pixelColor(x, y).name() for x in range(10, 180, 2) for y in range(30, 200, 2)}
    assert len(colors & strip) >= 4, "the timelines have the requests' colours"
    assert "8" in {column.words(entry) for column in COLUMNS}

    # what was read is not read again
    kept = RunIndex(storage.data() / "runs.index")
    assert {e.path: e for e in kept.entries(scan(folder))} == page.library.entries
    save_trace(Trace(lane_trace("static", slots=2, requests=2, output=(2, 4))), path_of(page, "static"))
    again = {e.title: e for e in kept.entries(scan(folder))}
    assert again["static"].unread, "another file of that name"
    assert not again["chunked"].unread


def test_a_file_says_that_it_is_read_and_leaving_the_page_does_not_begin_anew(
    qtbot: QtBot, folder: Path, window: MainWindow
) -> None:
    window.show_page(RUNS)
    page = window.pages.current
    assert isinstance(page, RunsPage)
    library, begun = page.library, []
    start = library._work.start
    library._work.start = lambda work: (begun.append(work), start(work))  # type: ignore[method-assign,assignment]
    qtbot.waitUntil(lambda: library.reading, timeout=WAIT)
    newest, *others = sorted(library.entries.values(), key=lambda entry: -entry.modified)
    assert detail_words(newest) == "being read …"
    assert {detail_words(entry) for entry in others} == {"not read yet"}
    window.show_page(PLAY)
    qtbot.waitUntil(lambda: read(page), timeout=WAIT)
    assert len(begun) == 1
    assert not any(entry.reading for entry in library.entries.values())
    assert all(entry.facts is not None for entry in library.entries.values())


def test_a_title_is_given_in_place_and_taken_back(qtbot: QtBot, page: RunsPage, window: MainWindow) -> None:
    pick(page, "static")
    before = page.chosen[0].path
    qtbot.keyClick(page.table, Qt.Key.Key_F2)
    field = page.table.findChild(QLineEdit, "run_title")
    assert field is not None
    assert field.text() == "static"
    field.setText("held rows")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not before.exists(), timeout=WAIT)
    assert before.with_name("held rows.bsrun").exists()
    assert [entry.title for entry in page.chosen] == ["held rows"]
    assert window.focusWidget() is page.table
    assert window.undo.actions[0].text() == "Undo: renamed run “static”"
    window.undo.actions[0].trigger()
    assert before.exists()
    window.undo.actions[1].trigger()
    assert before.with_name("held rows.bsrun").exists()


def test_a_title_that_no_file_can_have_is_refused(page: RunsPage, window: MainWindow) -> None:
    (path_of(page, "chunked")).rename(storage.runs() / "chunked.bsrun")
    before = path_of(page, "static")
    for title in ("a/b", ".hidden", "x" * 121, "chunked"):
        page.notice.hide()
        assert page.changes.rename(before, title) == before
        assert before.exists()
        assert page.notice.property("level") == "error"
        assert page.notice.isVisible()
    assert window.undo.count() == 0


def test_tags_and_the_baseline_stay_with_the_run(qtbot: QtBot, page: RunsPage, window: MainWindow) -> None:
    pick(page, "static")
    page.tag_action.trigger()
    sheet = page.findChild(TagSheet)
    assert sheet is not None
    sheet.field.setText("Talk, paper")
    qtbot.keyClick(sheet.field, Qt.Key.Key_Return)
    page.pin_action.trigger()
    assert page.library.baseline is not None
    assert page.library.baseline.tags == ("talk", "paper")
    pick(page, "chunked")
    ratio = page.rows.factor(page.chosen[0], 6)
    assert ratio.startswith("×")
    page.pin_action.trigger()
    assert page.library.baseline.title == "chunked", "one baseline"
    window.undo.undo()
    assert page.library.baseline.title == "static"
    new = page.changes.rename(path_of(page, "static"), "another name")
    kept = {e.path: e for e in RunIndex(page.library.index.path).entries(scan(storage.runs()))}
    assert kept[new].pinned
    assert kept[new].tags == ("talk", "paper")
    page.search.setText("tag:talk")
    assert titles(page) == ["another name"]


def test_what_is_deleted_comes_back_until_the_window_closes(
    qtbot: QtBot, page: RunsPage, window: MainWindow, folder: Path
) -> None:
    path = path_of(page, "static")
    held = path.read_bytes()
    pick(page, "static", "continuous")
    qtbot.keyClick(page.table, Qt.Key.Key_Delete)
    assert titles(page) == ["chunked"]
    assert not path.exists()
    assert [entry.title for entry in page.chosen] == ["chunked"], "the one beside is chosen"
    assert page.notice.title.text() == "Deleted 2 runs"
    page.notice.action.click()
    qtbot.waitUntil(lambda: len(titles(page)) == 3, timeout=WAIT)
    assert path.read_bytes() == held
    assert page.library.entries[path].facts is not None, "nothing is read again"
    window.undo.redo()
    assert titles(page) == ["chunked"]
    path.write_bytes(b"another run of that name")
    window.undo.undo()
    assert path.read_bytes() == b"another run of that name"
    assert path.with_name(f"{path.stem} 2.bsrun").read_bytes() == held
    window.undo.redo()
    assert path.exists(), "not the one that had its name meanwhile"
    assert not path.with_name(f"{path.stem} 2.bsrun").exists()
    assert any((storage.data() / "trash").rglob("*.bsrun"))
    with qtbot.waitSignal(window.closed, timeout=WAIT):
        window.close()
    assert not (storage.data() / "trash").exists()


def test_beyond_its_limit_the_oldest_run_goes_and_undo_lifts_the_limit(
    qtbot: QtBot, page: RunsPage, window: MainWindow
) -> None:
    sizes = {entry.title: entry.size for entry in page.library.entries.values()}
    page.library.set_limit(sum(sizes.values()) - 1)
    page.library.keep_limit()
    assert titles(page) == ["chunked", "continuous"]
    assert "beyond the limit" in page.notice.title.text()
    window.undo.undo()
    assert len(titles(page)) == 3
    assert page.library.limit == 0
    window.undo.redo()
    assert titles(page) == ["chunked", "continuous"]
    assert page.library.limit == sum(sizes.values()) - 1
    assert window.undo.count() == 1
    window.undo.undo()
    page.foot.limit.setCurrentIndex(1)
    page.foot.limit.activated.emit(1)
    assert RUNS_LIMIT.value == GB


def test_a_run_opens_on_play_and_several_on_one_clock(qtbot: QtBot, page: RunsPage, window: MainWindow) -> None:
    pick(page, "static")
    assert not page.compare_button.isEnabled()
    qtbot.keyClick(page.table, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: window.pages.currentIndex() == PLAY and window.runs.path is not None, timeout=WAIT)
    window.show_page(RUNS)
    pick(page, "static", "chunked")
    page.compare_action.trigger()
    assert window.pages.currentIndex() == COMPARE
    assert window.compare is not None
    race = window.compare.race
    qtbot.waitUntil(lambda: race.report is not None, timeout=WAIT)
    assert {lane.name for lane in race.lanes} == {"static", "chunked"}
    assert [lane.total for lane in race.lanes] == [8, 8]
    setup = window.compare.setup
    assert {chip.name.text() for chip in setup.picker.chips} == {"static", "chunked"}, "the lanes on show"
    assert {lane.lane.config.mode for lane in setup.choice.lanes} == {"static", "chunked"}
    assert window.compare.notice.property("level") == "info"
    assert "same prompts" in window.compare.notice.text.text()
    assert race.file is None
    other = storage.runs() / "other.bsrun"
    save_trace(Trace(lane_trace("static", slots=4, requests=5, output=(4, 16), seed=9)), other)
    page.compare_asked.emit([path_of(page, "static"), other])
    qtbot.waitUntil(lambda: [lane.total for lane in race.lanes] == [8, 5] and race.report is not None, timeout=WAIT)
    assert "They differ in prompts" in window.compare.notice.text.text()
    assert window.compare.result.light.text().strip() == "no prompt in common: no tokens to compare"


def test_a_run_is_exported_from_the_list(qtbot: QtBot, page: RunsPage, window: MainWindow, tmp_path: Path) -> None:
    pick(page, "static", "continuous")
    page.exports.actions()[0].trigger()
    dialog = window.findChild(QFileDialog, "run_export_dialog")
    assert dialog is not None
    dialog.fileSelected.emit(str(tmp_path / "two.html"))
    dialog.close()
    qtbot.waitUntil(lambda: (tmp_path / "two.html").exists(), timeout=WAIT)
    assert "continuous" in (tmp_path / "two.html").read_text()
    qtbot.waitUntil(lambda: "was written" in window.banner.title.text(), timeout=WAIT)


def test_what_is_still_recorded_has_its_figures_so_far_and_is_left_alone(
    qtbot: QtBot, page: RunsPage, window: MainWindow, traces: dict[str, Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, half = traces["static"].records, len(traces["static"].records) // 2
    trace, path = Trace(made[:half]), storage.runs() / "2026-11-20 11.00.00 now.bsrun"
    writer = TraceWriter(trace, path, interval=0.01)
    monkeypatch.setattr(type(window.session), "run_file", property(lambda session: path))

    def told() -> int:
        qtbot.waitUntil(lambda: writer._written == len(trace.records), timeout=WAIT)
        page.library.refresh()
        qtbot.waitUntil(lambda: path in page.library.entries and read(page), timeout=WAIT)
        entry = page.library.entries[path]
        assert entry.recording
        assert detail_words(entry).startswith("being recorded  ·  ")
        return entry.best.output_tokens if entry.best is not None else 0

    so_far = told()
    assert 0 < so_far < measure(traces["static"]).output_tokens
    trace.extend(made[half:])
    page.library.refresh()
    qtbot.waitUntil(lambda: page.library.entries[path].facts is None, timeout=WAIT)
    assert told() == measure(traces["static"]).output_tokens, "it is read again at the next look"
    pick(page, "now")
    assert not page.delete_action.isEnabled()
    page.changes.delete(page.chosen)
    assert path.exists()
    assert "begin a new session first" in page.notice.text.text()
    writer.close()


def test_an_empty_folder_says_how_runs_come(qtbot: QtBot, window: MainWindow) -> None:
    window.show_page(RUNS)
    page = window.pages.current
    assert isinstance(page, RunsPage)
    qtbot.waitUntil(page.play_button.isVisible, timeout=WAIT)
    page.play_button.click()
    assert window.pages.currentIndex() == PLAY


def test_a_damaged_index_is_put_aside(qtbot: QtBot, own_settings: Path, folder: Path, window: MainWindow) -> None:
    storage.data().mkdir(exist_ok=True)
    (storage.data() / "runs.index").write_bytes(b"no database" * 100)
    window.show_page(RUNS)
    page = window.pages.current
    assert isinstance(page, RunsPage)
    qtbot.waitUntil(lambda: read(page), timeout=WAIT)
    assert len(titles(page)) == 3
    assert (storage.data() / "runs.damaged").exists()


def test_a_thousand_runs_are_listed_in_well_under_a_second(
    qtbot: QtBot, page: RunsPage, folder: Path, window: MainWindow
) -> None:
    window.show_page(PLAY)
    entry = page.library.entries[path_of(page, "static")]
    assert entry.facts is not None
    index = RunIndex(storage.data() / "runs.index")
    index.path.unlink()
    for suffix in ("-wal", "-shm"):
        index.path.with_name(index.path.name + suffix).unlink(missing_ok=True)
    with index._open() as db:
        for number in range(1000):
            file = folder / f"run {number}.bsrun"
            file.write_bytes(b"x")
            told = replace(entry, path=file, size=1, modified=file.stat().st_mtime_ns)
            row = told.path.name, told.modified, told.size, json.dumps(entry.facts.to_json()), ""
            db.execute("insert into facts values (?, ?, ?, ?, ?)", row)
    begun = time.process_time()
    window.show_page(RUNS)
    qtbot.waitUntil(lambda: page.rows.rowCount() == 1003, timeout=WAIT)
    page.table.repaint()
    assert time.process_time() - begun < 3.0
    page.library.set_reads(False)


def test_the_index_of_a_later_version_is_left_as_it_is(own_settings: Path) -> None:
    index = RunIndex(storage.data() / "runs.index")
    storage.data().mkdir(exist_ok=True)
    with sqlite3.connect(index.path) as db:
        db.execute("pragma user_version = 99")
    db.close()
    assert index.entries([]) == []
    assert index.path.with_suffix(".damaged").exists()
