"""A run's file: written while it grows, read back whole, and as far as it goes after a crash."""

import contextlib
import os
import pickle
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine import Engine, InvalidInput, Submission, Trace, load_trace, save_trace
from engine.config.sampling_params import SamplingParams
from engine.trace import Notice, TraceWriter
from engine.trace.records import encode
from engine.workloads import demo_workload
from tests.engine.trace.hand_made import notices
from tests.waiting import until


def test_a_real_run_is_saved_and_read_back(demo: Engine, tmp_path: Path) -> None:
    workload = demo_workload(4, SamplingParams(max_tokens=10, temperature=0))
    for stream in demo.submit_many([Submission(a.prompt, a.params) for a in workload.arrivals]):
        stream.result(timeout=30)
    trace = Trace(demo.trace.since(0))
    save_trace(trace, tmp_path / "a.bsrun")
    back = load_trace(tmp_path / "a.bsrun")
    assert back.complete
    assert [encode(r) for r in back.records] == [encode(r) for r in trace.records]
    assert {i: v.text for i, v in back.requests.items()} == {i: v.text for i, v in trace.requests.items()}
    assert back.header == trace.header


def test_a_file_grows_with_its_trace_and_can_be_read_meanwhile(tmp_path: Path) -> None:
    trace, path = Trace(), tmp_path / "runs" / "grows.bsrun"
    writer = TraceWriter(trace, path, interval=0.01)
    try:
        with pytest.raises(InvalidInput, match="holds no record: its run ended before it began"):
            load_trace(path)
        trace.extend(notices(50))
        for _ in range(500):
            with contextlib.suppress(InvalidInput):
                if len(load_trace(path).records) == 50:
                    break
        assert load_trace(path).since(0) == notices(50)
    finally:
        trace.append(Notice(99.0, "info", "the last"))
        writer.close()
    assert len(load_trace(path).records) == 51
    assert writer.error == ""
    assert sorted(p.name for p in path.parent.iterdir()) == ["grows.bsrun"], "nothing beside the file is left"


def test_a_file_that_exists_is_not_written_into_and_only_its_owner_reads_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.bsrun"
    TraceWriter(Trace(notices(5)), path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(InvalidInput, match="exists; choose another name"):
        TraceWriter(Trace(notices(2)), path)
    assert load_trace(path).since(0) == notices(5)


def test_a_save_that_fails_says_so_and_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.bsrun"
    save_trace(Trace(notices(5)), path)
    long = Notice(1.0, "info", "x" * (2 << 20))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        with pytest.raises(InvalidInput, match="cannot write the run to"):
            save_trace(Trace([*notices(2), long]), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert load_trace(path).since(0) == notices(5)
    assert os.listdir(tmp_path) == ["a.bsrun"]


def test_what_was_killed_is_read_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder" / "killed.bsrun"
    writer = TraceWriter(Trace(notices(50)), path, interval=0.01)
    until(lambda: writer._written == 50)
    beside = path.with_name("killed.bsrun-wal")
    copy = tmp_path / "copy"
    copy.mkdir()
    for part in (path, beside):
        shutil.copyfile(part, copy / part.name)
    writer.close()
    monkeypatch.setattr(os, "access", lambda *_: False)  # a superuser may write anywhere
    assert load_trace(copy / path.name).since(0) == notices(50)
    assert sorted(os.listdir(copy)) == ["killed.bsrun", "killed.bsrun-wal"], "nothing was written beside it"


@pytest.mark.parametrize("writable", [True, False])
def test_a_killed_run_without_the_file_beside_it_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    trace, path, alone = Trace(notices(50)), tmp_path / "killed.bsrun", tmp_path / "alone"
    alone.mkdir()
    writer = TraceWriter(trace, path, interval=0.01)
    while writer._written < 50:
        time.sleep(0.01)
    shutil.copyfile(path, alone / "early.bsrun")
    long = [Notice(50.0 + i, "info", "x" * 1000) for i in range(8_000)]
    trace.extend(long)  # SQLite moves them from the one file to the other, now and then
    while writer._written < 8_050:
        time.sleep(0.01)
    trace.append(Notice(9_000.0, "info", "the last"))
    while writer._written < 8_051:
        time.sleep(0.01)
    shutil.copyfile(path, alone / "late.bsrun")
    writer.close()
    monkeypatch.setattr(os, "access", lambda *_: writable)
    with pytest.raises(InvalidInput, match=r"early.bsrun was copied without early.bsrun-wal, which holds what was"):
        load_trace(alone / "early.bsrun")
    *records, last = load_trace(alone / "late.bsrun").since(0)
    assert 50 < len(records) <= 8_050, "without the last"
    assert records == [*notices(50), *long][: len(records)]
    assert isinstance(last, Notice)
    assert "late.bsrun was copied without late.bsrun-wal" in last.text


def test_saving_over_a_file_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "a.bsrun"
    save_trace(Trace(notices(5)), path)
    save_trace(Trace(notices(2)), path)
    assert load_trace(path).since(0) == notices(2)


@pytest.mark.parametrize("name", ["a b.bsrun", "100%41.bsrun", "what?.bsrun", "no #1.bsrun", "größe.bsrun"])
def test_any_name_will_do(name: str, tmp_path: Path) -> None:
    save_trace(Trace(notices(3)), tmp_path / name)
    assert load_trace(tmp_path / name).since(0) == notices(3)


def test_after_a_crash_the_file_is_read_as_far_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "crash.bsrun"
    path.with_suffix(".pickle").write_bytes(pickle.dumps(notices(100)))  # what makes them would import torch
    program = (
        "import os, pickle, signal, sys, time\nfrom pathlib import Path\nfrom engine.trace import Trace, TraceWriter\n"
        "path, trace = Path(sys.argv[1]), Trace()\nwriter = TraceWriter(trace, path, interval=0.01)\n"
        "for record in pickle.loads(path.with_suffix('.pickle').read_bytes()):\n"
        "    trace.append(record)\n    time.sleep(0.002)\n"
        "while writer._written < 50:\n    time.sleep(0.001)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], timeout=60, check=False)
    records = load_trace(path).since(0)
    assert 50 <= len(records) <= 100
    assert records == notices(len(records))


def test_a_truncated_file_is_read_in_part_or_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cut.bsrun"
    save_trace(Trace(notices(2000)), path)
    whole = path.read_bytes()
    for part in (0, 1, 100, 5000, len(whole) // 2, len(whole) - 4096, len(whole) - 10):
        path.write_bytes(whole[:part])
        try:
            records = load_trace(path).since(0)
        except InvalidInput as refused:
            message = str(refused)
            assert str(path) in message
        else:
            assert records == notices(len(records))


def test_what_is_no_run_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no run at"):
        load_trace(tmp_path / "none.bsrun")
    text = tmp_path / "text.bsrun"
    text.write_text("once there was a fox " * 500)
    with pytest.raises(InvalidInput, match="cannot be read as a Batchscope run"):
        load_trace(text)
    other = tmp_path / "other.db"
    db = sqlite3.connect(other)
    db.execute("create table records (seq, kind, data)")
    db.commit()
    db.close()
    with pytest.raises(InvalidInput, match="is not a Batchscope run"):
        load_trace(other)


def test_a_run_of_a_newer_version_asks_for_an_update(tmp_path: Path) -> None:
    path = tmp_path / "new.bsrun"
    save_trace(Trace(notices(1)), path)
    db = sqlite3.connect(path)
    db.execute("pragma user_version = 99")
    db.commit()
    db.close()
    with pytest.raises(InvalidInput, match=r"newer Batchscope \(format 99\)"):
        load_trace(path)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="choose another place"):
        TraceWriter(Trace(), tmp_path / "file" / "a.bsrun")
