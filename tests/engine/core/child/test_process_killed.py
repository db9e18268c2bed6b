"""A child that is killed ends its requests, a window that is killed ends its child. Many times: ends are races."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from engine import EngineProcess, InvalidInput
from engine.core.child.process import EngineDied
from engine.trace import FinishReason, Notice
from tests.children import children
from tests.engine.core.child.ending_processes import DRAFT, FOX, SHORT, SMALL, TIMES, busy, check_texts, gone
from tests.waiting import until

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


def test_a_child_that_is_killed_ends_its_requests_with_an_error_and_their_texts_kept() -> None:
    for turn in range(TIMES):
        engine, over, open_ones = busy()
        callers = [threading.Thread(target=submit_until_refused, args=(engine,)) for _ in range(2 * (turn % 2))]
        for caller in callers:
            caller.start()
        os.kill(engine.pid, signal.SIGKILL if turn % 4 else signal.SIGSEGV)
        for caller in callers:
            caller.join(timeout=60)
            assert not caller.is_alive()
        open_ones[0].result(timeout=60)
        engine._receiver.join(timeout=60)
        assert gone(engine.pid)
        check_texts(engine, over, open_ones, FinishReason.ERROR)
        how = "killed by signal " + ("SIGKILL" if turn % 4 else "SIGSEGV")
        assert engine.error == f"the engine's process {engine.pid} is gone ({how})"
        assert open_ones[0].result().error == engine.error
        assert [r.text for r in engine.trace.records if isinstance(r, Notice)] == [engine.error]
        with pytest.raises(InvalidInput, match="is gone"):
            engine.submit(FOX, SHORT)
        engine.close()


def submit_until_refused(engine: EngineProcess) -> None:
    with contextlib.suppress(EngineDied, InvalidInput):
        while True:
            engine.submit(FOX, SHORT)


def test_a_child_that_is_killed_while_it_loads_raises_here() -> None:
    deaths = []
    for turn in range(TIMES):
        pids: list[int] = []
        killer = threading.Thread(target=kill_new_child, args=(children(), 0.03 * turn, pids))
        killer.start()
        try:
            EngineProcess(DRAFT, SMALL, threads=1).close()
        except EngineDied as died:
            deaths.append(str(died))
        killer.join()
        assert all(gone(pid) for pid in pids)
    assert deaths, "a load takes longer than a moment"
    assert all("killed by signal SIGKILL" in death for death in deaths)


def kill_new_child(before: set[int], after: float, pids: list[int]) -> None:
    until(lambda: children() - before)
    time.sleep(after)
    for pid in children() - before:
        pids.append(pid)
        psutil.Process(pid).kill()


WINDOW = """
import sys
from engine import EngineConfig, EngineProcess, ModelSpec, SamplingParams, Submission

config = EngineConfig(max_running=4, token_budget=512)
engine = EngineProcess(ModelSpec("demo-draft"), config, threads=1, progress=lambda p: print(p.stage, flush=True))
params = SamplingParams(max_tokens=900, temperature=0, ignore_eos=True)
streams = engine.submit_many([Submission("Once there was", params) for _ in range(6)])
next(iter(streams[0]))
print("speaking", flush=True)
sys.stdin.read()
"""


def window() -> subprocess.Popen[str]:
    """A process that hosts an engine as the window does, and says how far it is."""
    root = Path(__file__).parents[4]
    return subprocess.Popen(
        [sys.executable, "-c", WINDOW], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def engines_of(parent: subprocess.Popen[str]) -> list[int]:
    return [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]


def test_a_window_that_is_killed_while_its_engine_starts_takes_it_along() -> None:
    for after in (0.0, 2.0):
        with window() as parent:
            while not engines_of(parent):
                assert parent.poll() is None
                time.sleep(0.005)
            time.sleep(after)
            engines = engines_of(parent)
            parent.kill()
        assert all(gone(pid) for pid in engines)


def test_a_window_that_is_killed_while_its_engine_speaks_takes_it_along() -> None:
    for _ in range(TIMES // 4):
        with window() as parent:
            assert parent.stdout is not None
            assert any(line.strip() == "speaking" for line in parent.stdout)
            engines = engines_of(parent)
            assert engines
            parent.kill()
        assert all(gone(pid) for pid in engines)
