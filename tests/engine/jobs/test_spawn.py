"""Children come from a server that has imported what they need, as if they were this process's own."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.jobs import spawn
from engine.jobs.job import run_job
from engine.jobs.progress import LoadCancelled
from tests.children import children
from tests.engine.core.child.ending_processes import gone

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no server elsewhere")

ROOT = Path(__file__).parents[3]


class Asked:
    """A child that evaluates expressions."""

    def __init__(self, **options: Any) -> None:
        self.link, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.enter_context(self.link)
            self.child = spawn.start("tests.engine.jobs.spawned:answer", theirs, **options)
            undo.pop_all()
        self._lines = self.link.makefile()

    def __call__(self, expression: str) -> Any:
        self.link.sendall(f"{expression}\n".encode())
        return json.loads(self._lines.readline())

    def end(self) -> int:
        self._lines.close()
        self.link.close()
        return self.child.wait(60)

    @property
    def forked(self) -> bool:
        return psutil.Process(self.child.pid).ppid() == spawn.server_pid()


@contextlib.contextmanager
def asked(**options: Any) -> Iterator[Asked]:
    child = Asked(**options)
    yield child
    child.end()


def test_a_child_of_the_server_imports_nothing_for_its_first_token() -> None:
    new = run_job("tests.engine.jobs.spawned:first_token", None)
    assert [name for name in new if name.partition(".")[0] in ("torch", "transformers", "engine", "tokenizers")] == []


def test_torchs_compiler_is_left_out_and_works_in_a_child() -> None:
    quantizations = ["none", "int8", "nf4-double"]
    assert run_job("tests.engine.jobs.spawned:compiler", quantizations) == [False, False, False, 3.0]


def test_the_server_has_one_thread_and_left_the_gpu_alone() -> None:
    with asked() as child:
        assert child.forked
        assert os.listdir(f"/proc/{spawn.server_pid()}/task") == [str(spawn.server_pid())]
        assert not child("sys.modules['torch'].cuda.is_initialized()")
        assert not child("sys.modules['torch'].cuda._is_in_bad_fork()")


def test_a_child_has_folder_path_and_output_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("/somewhere/else")
    with asked() as child:
        assert child.forked
        assert child("os.getcwd()") == str(tmp_path)
        assert child("sys.path") == sys.path
        child("print('said', flush=True)")
        child("os.write(2, b'complained')")
    assert capfd.readouterr() == ("said\n", "complained")


def test_a_child_has_the_environment_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHSCOPE_DATA", "/somewhere")  # nothing reads it while it is imported
    with asked() as child:
        assert child.forked
        assert child("os.environ['BATCHSCOPE_DATA']") == "/somewhere"
        assert child("dict(os.environ)") == dict(os.environ)
    with asked(environment={"OMP_NUM_THREADS": "7"}) as child:  # libraries have read it where they are imported
        assert not child.forked
        assert child("os.environ['OMP_NUM_THREADS']") == "7"


def test_how_a_child_ended_is_told_to_all_who_wait() -> None:
    with asked() as child:
        pass
    assert child.child.wait() == 0
    codes: list[int] = []
    child = Asked()
    waiting = [threading.Thread(target=lambda: codes.append(child.child.wait())) for _ in range(3)]
    for thread in waiting:
        thread.start()
    with pytest.raises(subprocess.TimeoutExpired):
        child.child.wait(0.01)
    child.child.kill()
    for thread in waiting:
        thread.join(60)
    child.child.terminate()  # which has nobody to hear it
    assert codes == 3 * [-signal.SIGKILL]
    assert child.end() == -signal.SIGKILL


def test_a_server_that_is_killed_is_started_anew_and_its_children_go_on() -> None:
    before = Asked()
    first = spawn.server_pid()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    with asked() as child:
        assert child.forked
        assert spawn.server_pid() != first
    assert before("6 * 7") == 42
    assert before.end() == spawn.UNTOLD
    assert gone(before.child.pid)


def test_light_work_does_not_wait_for_the_server() -> None:
    server = spawn.Server()
    spawn._server, kept = server, spawn._server
    try:
        with asked(light=True) as child:
            assert not child.forked
        cancelled = threading.Event()
        threading.Timer(0.1, cancelled.set).start()
        with pytest.raises(LoadCancelled):
            Asked(cancelled=cancelled)
        assert not server.ready, "who cancels does not wait until it is"
    finally:
        server.end()
        spawn._server = kept


def test_a_process_that_is_killed_takes_its_server_and_children_along() -> None:
    code = (
        "import socket, sys; from engine.jobs import spawn; ours, theirs = socket.socketpair()\n"
        "child = spawn.start('tests.engine.jobs.spawned:answer', theirs); theirs.close()\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()"
    )
    for wait in (False, True):
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
            born: list[psutil.Process] = []
            assert parent.stdout is not None
            if wait:
                assert parent.stdout.readline()
            while not born:
                born = psutil.Process(parent.pid).children(recursive=True)
            parent.kill()
        assert all(gone(process.pid) for process in born)


def test_a_process_that_ends_leaves_no_server() -> None:
    code = "from engine.jobs import spawn; spawn.warm_up(); print(spawn.server_pid())"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    assert not psutil.pid_exists(int(done.stdout))


def test_nothing_but_the_server_stays() -> None:
    with asked() as child:
        assert child.child.pid in children()
    assert child.child.pid not in children()


def test_a_stopped_server_holds_nobody_up_whose_child_has_ended() -> None:
    asked = Asked()
    pid = spawn.server_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        asked.child.kill()
        begun = time.monotonic()
        assert asked.child.wait(60) == spawn.UNTOLD
        assert time.monotonic() - begun < 30
    finally:
        os.kill(pid, signal.SIGCONT)
        asked.link.close()
