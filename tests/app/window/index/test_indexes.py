"""Runs that are opened by their index are what they are when all their records are read: real runs of messy kinds."""

import json
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.inside.insights import INSIGHTS
from app.inside.kv_map import flashes
from app.inside.kv_map.state import FIELDS, KvState, Requests
from app.inside.memory.history import MemoryHistory
from app.playback.scope import Scope
from app.runs.trash import Trash
from app.window.index.indexes import TraceIndexes
from app.window.index.readers import MODULES, WindowReaders, indexes
from app.window.main_window import MainWindow
from app.window.runs import saved_runs
from engine import Engine, EngineConfig, InvalidInput, SamplingParams, Submission, Trace, load_trace, save_trace
from engine.bench.trace.synthetic import made_up_hour
from engine.trace import (
    FiledLog,
    Header,
    IndexFolder,
    RequestIndex,
    RequestView,
    Step,
    Submitted,
    TallyIndex,
    TraceWriter,
    forget_index,
    measure,
)
from engine.trace.index.folder import OWN
from engine.trace.index.frozen import Freezer, kinds_in
from engine.trace.index.views import REQUESTS
from engine.trace.records import encode
from tests.engine.trace.test_formats import EARLIER, unpacked

BLOCK = 6144 * 16  # bytes of a block of 16 tokens of the demo model
WAIT = 60_000
EMPTY = np.zeros(0, np.int32)
ALIKE = [*range(100, 140)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("indexed")


@pytest.fixture(scope="module")
def runs(engine: Engine, folder: Path) -> dict[str, Path]:
    """Files of runs in which as much as can be happens."""

    def recorded(name: str, config: EngineConfig, *asked: Submission, cancel: int = 0) -> Path:
        engine.begin(config)
        streams = engine.submit_many(asked)
        if cancel:
            while len(engine.trace.steps) < cancel:
                time.sleep(0.002)
            engine.cancel()
        for stream in streams:
            stream.result()
        path = folder / f"{name}.bsrun"
        save_trace(Trace(engine.trace.records), path)
        return path

    def story(i: int, tokens: int, **given: object) -> Submission:
        params = SamplingParams(**{"max_tokens": tokens, "temperature": 0.8, "seed": i, "ignore_eos": True, **given})  # type: ignore[arg-type]
        return Submission([*ALIKE, 7, i], params, label=f"story {i}")

    tight = {"max_running": 6, "token_budget": 48, "kv_memory": 14 * BLOCK}
    swap = EngineConfig("chunked", **tight, depth=1, prefix_caching=True, preemption="swap")  # type: ignore[arg-type]
    again = EngineConfig("continuous", 5, kv_memory=14 * BLOCK, prefix_caching=True)
    beams = EngineConfig("continuous", 12, kv_memory=96 * BLOCK)
    searches = [story(i, 16, beam_width=3, temperature=0.0, seed=None) for i in range(2)]
    return {
        "preempted": recorded("preempted", again, *(story(i, 40 + i) for i in range(7)), story(9, 12, n=3, logprobs=2)),
        "swapped": recorded("swapped", swap, *(story(i, 30 + 5 * i) for i in range(8))),
        "searched": recorded("searched", beams, *searches, *(story(i, 400) for i in range(2, 6)), cancel=24),
        "padded": recorded("padded", EngineConfig("static", 3), *(story(i, 4 + 6 * i) for i in range(5))),
    }


@pytest.fixture(scope="module")
def kept(folder: Path, runs: dict[str, Path]) -> IndexFolder:
    """The indexes of them all."""
    result = indexes(folder / "data")
    for path in runs.values():
        result.build(path, WindowReaders(), lambda done, total: None)
    return result


@pytest.fixture(params=["preempted", "swapped", "searched", "padded"])
def run(request: pytest.FixtureRequest, runs: dict[str, Path]) -> Path:
    return runs[request.param]


def opened(kept: IndexFolder, path: Path) -> Trace:
    trace = kept.open(path)
    assert trace is not None
    assert isinstance(trace.records, FiledLog)
    return trace


def plainly(requests: Mapping[int, RequestView]) -> dict[int, tuple[RequestView, list[int]]]:
    """Views that can be compared: those of arrays cannot."""
    return {i: (replace(view, prompt_ids=EMPTY), view.prompt_ids.tolist()) for i, view in requests.items()}


def places(trace: Trace, count: int) -> list[int]:
    """Of steps, the first and the last among them."""
    steps = len(trace.records.step_ends)
    return sorted({0, steps - 1, *random.Random(steps).sample(range(steps), min(steps, count))})


def test_the_runs_are_as_messy_as_they_are_meant(runs: dict[str, Path]) -> None:
    def told(name: str, column: str) -> int:
        return sum(len(getattr(step, column)) for step in load_trace(runs[name]).steps)

    assert told("preempted", "preempted")
    assert told("swapped", "swap_event")
    assert told("searched", "beam_request")
    assert any(step.reused.any() for step in load_trace(runs["preempted"]).steps)
    assert any(view.reason == "cancelled" for view in load_trace(runs["searched"]).requests.values())


def test_records_are_those_of_the_file(kept: IndexFolder, run: Path) -> None:
    trace, plain = opened(kept, run), load_trace(run)
    assert [encode(record) for record in trace.records] == [encode(record) for record in plain.records]
    assert [encode(record) for record in trace.records[5:-3:7]] == [encode(r) for r in plain.records[5:-3:7]]
    assert trace.records.columns == plain.records.columns
    assert (trace.origin, trace.end, trace.samples, trace.open) == (plain.origin, plain.end, plain.samples, plain.open)
    assert plainly(trace.requests) == plainly(plain.requests)
    assert trace.complete
    assert trace.known["last_run"] == measure(plain)
    with pytest.raises(IndexError):
        trace.records[len(plain.records)]


def test_what_its_readers_know_is_what_reading_tells(kept: IndexFolder, run: Path) -> None:
    readers, plain = WindowReaders(), load_trace(run)
    for begin in range(0, len(plain.records), 128):
        readers.take(plain.records[begin : begin + 128])
    fresh, known = dict(readers.known()), dict(opened(kept, run).known)
    kinds = kinds_in((*OWN, *MODULES))
    trees = []
    for each in (fresh, {name: known[name] for name in fresh}):
        freezer = Freezer(kinds, REQUESTS)
        trees.append((json.dumps(freezer.freeze(each)), [(a.dtype, a.shape, a.tobytes()) for a in freezer.arrays]))
    assert trees[0] == trees[1]


def test_any_moment_is_that_of_a_plain_replay(kept: IndexFolder, run: Path) -> None:
    trace, plain = opened(kept, run), load_trace(run)
    wanted = set(places(plain, 12))
    requests, tally, memory, state = RequestIndex(), TallyIndex(), MemoryHistory(), None
    place, records = -1, list(plain.records)
    for at, record in enumerate(records):
        if isinstance(record, Header):
            asked = Requests(record.model.context)
            state = KvState(record, asked)
        assert state is not None
        if isinstance(record, Submitted):
            asked.feed(record, at)
        requests.feed(record)
        tally.feed([record])
        memory.take([record])
        state.feed(record)
        place += isinstance(record, Step)
        if place not in wanted or not (at + 1 == len(records) or isinstance(records[at + 1], Step)):
            continue  # what ended with a step is told after it
        moment = max(trace.records.times[at], trace.records.step_ends[place])
        assert plainly(trace.known["requests"].at(moment)) == plainly(requests.at(moment)), f"step {place}"
        assert trace.known["tally"].at(moment) == tally.at()
        assert trace.known["memory"].series.at(place) == memory.series.at(place)
        found = trace.known["kv_map"].at(place, trace.records)
        assert found.at == state.at == place
        for field in FIELDS:
            assert np.array_equal(getattr(found, field), getattr(state, field)), f"{field} after step {place}"
        for request in trace.requests:
            tables, told = found.samples(request), state.samples(request)
            assert {b: t.tolist() for b, t in tables.items()} == {b: t.tolist() for b, t in told.items()}
        assert (found.swapped, found.kinds()) == (state.swapped, state.kinds())
        wanted.discard(place)
    assert not wanted


@pytest.fixture
def scopes(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Scope]]:
    monkeypatch.setattr(flashes, "SECONDS", -1.0)  # nothing fades
    scopes = [Scope(), Scope()]
    yield scopes
    for scope in scopes:
        scope.stop()


def test_every_panel_shows_what_it_would_have_read(
    qtbot: QtBot, kept: IndexFolder, run: Path, scopes: list[Scope]
) -> None:
    shown = []
    for scope, trace in zip(scopes, (opened(kept, run), load_trace(run))):
        scope.show(trace)
        panels = [insight.build(scope) for insight in INSIGHTS]
        for panel in panels:
            qtbot.addWidget(panel)
            panel.resize(700, 420)
            panel.show()
        scope.catch_up()
        assert all(panel.caught_up for panel in panels)
        shown.append(panels)
    requests = sorted(scopes[0].trace.requests)
    for place in places(scopes[0].trace, 4):
        for scope in scopes:
            scope.seek(float(scope.step_ends[place]))
            scope.select(requests[place % len(requests)])
            scope.catch_up()
        for ours, theirs in zip(*shown):
            assert ours.facts().csv() == theirs.facts().csv(), f"{ours.title} at step {place}"
            assert ours.summary.text() == theirs.summary.text()
            assert ours.grab().toImage() == theirs.grab().toImage(), f"{ours.title} at step {place}"


def test_a_damaged_index_is_none(kept: IndexFolder, runs: dict[str, Path], tmp_path: Path) -> None:
    own, run, draw = indexes(tmp_path / "indexes"), runs["searched"], random.Random(0)
    shutil.copytree(kept.folder, own.folder)
    file = own.file(run)
    whole = file.read_bytes()
    for at in [0, 9, 41, 60, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(20))]:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])
        assert own.open(run) is None, f"byte {at} is another"
        assert not file.exists()
    for end in (0, 5, 45, len(whole) // 2, len(whole) - 8):
        file.write_bytes(whole[:end])
        assert own.open(run) is None
    file.write_bytes(whole)
    assert own.open(run) is not None
    (own.folder / "key").unlink()
    assert own.open(run) is None, "somebody else's"
    file.write_bytes(whole)
    assert IndexFolder(own.folder, MODULES, ()).open(run) is None, "made by other code"


def test_an_index_is_not_believed_over_the_records(kept: IndexFolder, runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "renamed.bsrun"
    shutil.copyfile(runs["preempted"], run)
    trace = opened(kept, run)  # under another name it is the same run
    end, at = len(trace.records), trace.records.step_places[20]
    with closing(sqlite3.connect(run)) as db:
        (data,) = db.execute("select data from records where seq = ?", (at,)).fetchone()
        spoilt = data.replace(b'"running":', b'"running" :', 1)
        db.execute("update records set data = ? where seq = ?", (spoilt, at))
        db.commit()
    assert isinstance(trace.records, FiledLog)
    with pytest.raises(InvalidInput, match="changed"):
        list(trace.records)
    told: list[str] = []
    trace.records.changed = told.append
    assert len(list(trace.records)) == end
    assert len(told) == 1
    with closing(sqlite3.connect(run)) as db:
        db.execute("delete from records where seq = ?", (end - 1,))
        db.commit()
    assert kept.open(run) is None


def test_a_run_that_was_killed_has_one(runs: dict[str, Path], tmp_path: Path) -> None:
    trace, live, killed = Trace(load_trace(runs["padded"]).records[:60]), tmp_path / "live.bsrun", tmp_path / "a.bsrun"
    writer = TraceWriter(trace, live, interval=0.01)
    with closing(sqlite3.connect(live)) as db:
        while db.execute("select count(*) from records").fetchone() != (60,):
            time.sleep(0.01)
    for ending in ("", "-wal"):
        shutil.copyfile(f"{live}{ending}", f"{killed}{ending}")
    writer.close()
    own = indexes(tmp_path / "indexes")
    own.build(killed, WindowReaders(), lambda done, total: None)
    found = opened(own, killed)
    assert [encode(record) for record in found.records] == [encode(record) for record in load_trace(killed).records]
    assert found.open == trace.open != []
    killed.with_name(f"{killed.name}-wal").unlink()
    assert own.open(killed) is None


@pytest.mark.parametrize(
    "harm",
    [
        "update records set seq = 1 << 62 where seq = 7",
        "update records set seq = -1 where seq = 7",
        "delete from records",
        "update records set data = 'words' where seq = 7",
        "update records set kind = x'00' where seq = 7",
        "update records set data = x'00' where seq = 7",
    ],
)
def test_a_file_made_to_do_harm_has_none(runs: dict[str, Path], tmp_path: Path, harm: str) -> None:
    run, own = Path(shutil.copy(runs["padded"], tmp_path / "a.bsrun")), indexes(tmp_path / "indexes")
    with closing(sqlite3.connect(run)) as db:
        db.execute(harm)
        db.commit()
    with pytest.raises(InvalidInput):
        own.build(run, WindowReaders(), lambda done, total: None)
    assert own.open(run) is None
    assert not list(own.folder.glob("*.bsindex"))


@pytest.mark.parametrize("number", EARLIER)
def test_files_of_earlier_formats_have_one_where_their_records_stand_alone(tmp_path: Path, number: int) -> None:
    path, own = unpacked(tmp_path, number), indexes(tmp_path / "indexes")
    if number < 3:
        with pytest.raises(InvalidInput, match=f"format {number}"):
            own.build(path, WindowReaders(), lambda done, total: None)
        assert own.open(path) is None
        return
    own.build(path, WindowReaders(), lambda done, total: None)
    assert plainly(opened(own, path).requests) == plainly(load_trace(path).requests)


def test_the_indexes_used_longest_ago_make_room(kept: IndexFolder, runs: dict[str, Path], tmp_path: Path) -> None:
    from engine.trace.index.kept import make_room

    shutil.copytree(kept.folder, tmp_path / "few")
    own = IndexFolder(tmp_path / "few", MODULES, ())
    files = [own.file(path) for path in runs.values()]
    for file in files:  # in this order they were used
        file.touch()
        time.sleep(0.01)
    make_room(own.folder, sum(file.stat().st_size for file in files[2:]))
    assert [file.exists() for file in files] == [False, False, True, True]


def test_a_run_that_is_deleted_for_good_takes_its_index_along(
    kept: IndexFolder, runs: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(kept.folder, tmp_path / "some")
    own, run = indexes(tmp_path / "some"), Path(shutil.copy(runs["padded"], tmp_path / "a run.bsrun"))
    trash = Trash(tmp_path / "trash", lambda path: forget_index(own.folder, path))
    trashed = trash.take(run)
    assert own.open(trash.give_back(trashed)) is not None
    trash.take(run)
    trash.empty()
    assert not own.file(runs["padded"]).exists()
    assert own.open(runs["swapped"]) is not None


# -- in the window ------------------------------------------------------------------------------------------------


@pytest.fixture
def long_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(saved_runs, "LONG", 600)
    monkeypatch.setattr(saved_runs, "HEAD_START", 0.0)
    path = tmp_path / "long.bsrun"
    save_trace(Trace(made_up_hour(500, 6)), path)
    return path


def shows(window: MainWindow, path: Path, by_index: bool) -> Callable[[], bool]:
    def known() -> bool:
        bridge = window.bridge
        there = window.runs.path == path and not window.runs.reading and not bridge.behind
        return there and bool(bridge.trace.records) and bool(bridge.trace.known) == by_index

    return known


def test_a_long_run_is_whole_at_once_when_it_is_opened_again(
    qtbot: QtBot, window: MainWindow, long_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window.page.complete()
    made = window.runs.indexes
    with qtbot.waitSignal(made.built, timeout=WAIT) as built:
        window.open_path(long_run)
    assert built.args == [long_run]
    qtbot.waitUntil(lambda: window.runs.path == long_run and not window.bridge.behind, timeout=WAIT)
    window.runs.close()
    read = load_trace(long_run)
    window.open_path(long_run)
    qtbot.waitUntil(shows(window, long_run, by_index=True), timeout=WAIT)
    bridge, scope = window.bridge, window.bridge.scope
    assert scope.steps == len(read.steps) == 500
    assert plainly(bridge.requests) == plainly(read.requests)
    assert bridge.tally.ids == list(read.requests)
    assert scope.moment < scope.end, "it stands where most was running"
    scope.follow()
    qtbot.waitUntil(lambda: len(window.page.table.model.order) == len(read.requests), timeout=WAIT)
    assert bridge.busy, "it ends in the midst of its requests"
    assert window.page.charts.series.used_at(scope.end) is not None
    scope.seek(float(scope.step_ends[10]))
    assert len(bridge.shown) == sum(view.submitted <= scope.moment for view in read.requests.values())


def test_a_file_that_changes_while_its_index_is_on_show_is_read_anew(
    qtbot: QtBot, window: MainWindow, long_run: Path
) -> None:
    folder: TraceIndexes = window.runs.indexes
    with qtbot.waitSignal(folder.built, timeout=WAIT):
        folder.ask(long_run)
    window.open_path(long_run)
    qtbot.waitUntil(shows(window, long_run, by_index=True), timeout=WAIT)
    with closing(sqlite3.connect(long_run)) as db:
        rows = db.execute("select seq, data from records").fetchall()
        db.executemany("update records set data = ? where seq = ?", [(data + b"!", seq) for seq, data in rows])
        db.commit()
    scope, before = window.bridge.scope, window.bridge.trace
    scope.seek(float(scope.step_ends[3]))
    qtbot.waitUntil(lambda: window.bridge.trace is not before and scope.steps == 500, timeout=WAIT)
    assert [encode(step) for step in window.bridge.trace.steps] == [encode(step) for step in load_trace(long_run).steps]
