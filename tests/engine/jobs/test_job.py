"""Jobs: work in a child process that tells how far it is, can be cancelled, and never outlives who asked for it."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.config.specs import InvalidInput
from engine.jobs.job import PATIENCE, JobDied, Report, run_job
from engine.jobs.progress import LoadCancelled, LoadProgress

HERE = "tests.engine.jobs.test_job"


def count_to(arguments: Any, report: Report) -> Any:
    for i in range(arguments["to"]):
        report(LoadProgress("counting", i + 1, arguments["to"]))
    print("a library's chatter on stdout")
    return {"pid": os.getpid(), "sum": sum(range(arguments["to"] + 1))}


def refuse(arguments: Any, report: Report) -> Any:
    raise InvalidInput(f"samples={arguments}: must be at least 1")


def stumble(arguments: Any, report: Report) -> Any:
    return {}["nothing"]


def vanish(arguments: Any, report: Report) -> Any:
    print("the last words", file=sys.stderr, flush=True)
    os._exit(3)


def linger(arguments: Any, report: Report) -> Any:
    """Leaves a file while it works, and tidies up when it is cancelled."""
    path = Path(arguments["file"])
    path.write_text(str(os.getpid()))
    try:
        report(LoadProgress("working"))
        while True:
            time.sleep(0.01)
    finally:
        path.unlink()


def swallow(arguments: Any, report: Report) -> Any:
    """As libraries do that try one thing and then another."""
    report(LoadProgress("trying"))
    with contextlib.suppress(Exception):
        time.sleep(60)
    while True:
        report(LoadProgress("trying something else"))
        time.sleep(0.01)


def test_a_job_runs_in_another_process_and_tells_how_far_it_is() -> None:
    heard: list[LoadProgress] = []
    result = run_job(f"{HERE}:count_to", {"to": 4}, heard.append)
    assert result["sum"] == 10
    assert result["pid"] != os.getpid()
    assert [p.done for p in heard] == [1, 2, 3, 4]
    assert heard[0] == LoadProgress("counting", 1, 4)


def test_what_a_job_refuses_is_refused_here_in_its_words() -> None:
    with pytest.raises(InvalidInput, match=r"^samples=0: must be at least 1$"):
        run_job(f"{HERE}:refuse", 0)


def test_a_job_that_fails_or_dies_says_why() -> None:
    with pytest.raises(JobDied, match="KeyError: 'nothing'"):
        run_job(f"{HERE}:stumble", None)
    with pytest.raises(JobDied, match="ended with code 3: the last words"):
        run_job(f"{HERE}:vanish", None)


def test_a_cancelled_job_tidies_up_and_is_gone(tmp_path: Path) -> None:
    file, cancelled = tmp_path / "working", threading.Event()

    def on_progress(_: LoadProgress) -> None:
        assert file.exists()
        cancelled.set()

    with pytest.raises(LoadCancelled):
        run_job(f"{HERE}:linger", {"file": str(file)}, on_progress, cancelled)
    assert not file.exists()


def test_what_the_listener_raises_ends_the_job_and_is_raised_here(tmp_path: Path) -> None:
    def on_progress(_: LoadProgress) -> None:
        raise BrokenPipeError("the terminal is gone")

    with pytest.raises(BrokenPipeError, match="the terminal is gone"):
        run_job(f"{HERE}:linger", {"file": str(tmp_path / "working")}, on_progress)
    assert not (tmp_path / "working").exists()


def test_a_cancellation_that_a_library_swallows_is_seen_at_the_next_report() -> None:
    cancelled, begun = threading.Event(), time.monotonic()
    with pytest.raises(LoadCancelled):
        run_job(f"{HERE}:swallow", None, lambda _: cancelled.set(), cancelled)
    assert time.monotonic() - begun < PATIENCE


def test_a_job_ends_with_the_process_that_asked_for_it(tmp_path: Path) -> None:
    file = tmp_path / "working"
    code = f"from engine.jobs.job import run_job; run_job('{HERE}:linger', {{'file': {str(file)!r}}})"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
    try:
        deadline = time.monotonic() + 30
        while not (file.exists() and file.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        child = psutil.Process(int(file.read_text()))
    finally:
        parent.kill()
        parent.wait()
    child.wait(20)
    assert not file.exists()
