"""tests/gpu, run by pytest within a limit of time."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

WORKERS = 12  # most of the time is the compiler's
KEPT = 60  # last lines
EACH = 150  # seconds of one test
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # of a process that has many beside it
GRACE = 10.0  # seconds to tell what failed until they were stopped


def run_tests(folder: Path, limit: float) -> dict[str, Any]:
    """How they ended, printed as they run; says why where they cannot run, and stops them at the limit, when they tell
    what failed until then."""
    if not folder.is_dir():
        return _without(f"there is no {folder}")
    if importlib.util.find_spec("pytest") is None:
        return _without("pytest is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-rfE", "--tb=short", "-W", "default"]
    if importlib.util.find_spec("pytest_timeout") is not None:
        command += ["--timeout", str(EACH)]
    workers = min(WORKERS, 3 * (os.cpu_count() or 1) // 4)
    if workers > 1 and importlib.util.find_spec("xdist") is not None:
        command += ["-n", str(workers), "--dist", "load", "--maxschedchunk", "1"]
    print(f"tests: {' '.join(command[1:])} {folder}", flush=True)
    begun = time.monotonic()
    told: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    told["env"] = {**os.environ, **ONE_THREAD}
    child = subprocess.Popen([*command, str(folder)], cwd=folder.parents[1], start_new_session=True, **told)
    over = threading.Event()

    def stop() -> None:
        over.set()
        child.send_signal(signal.SIGINT)

    def end() -> None:
        os.killpg(child.pid, signal.SIGKILL)  # its workers too

    timers = threading.Timer(limit, stop), threading.Timer(limit + GRACE, end)
    for timer in timers:
        timer.start()
    last: deque[str] = deque(maxlen=KEPT)
    try:
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
            last.append(line.rstrip())
        status = child.wait()
    finally:
        for timer in timers:
            timer.cancel()
        if child.stdout is not None:
            child.stdout.close()
    found: dict[str, Any] = {"seconds": round(time.monotonic() - begun, 1), "exit": status, "end": list(last)}
    failed = "; ".join(line for line in last if line.startswith(("FAILED", "ERROR")))[:2000]
    if over.is_set():
        late = f"the tests were not over after {limit:.0f} s"
        return found | {"state": "failed", "error": f"{late}; {failed}" if failed else late}
    if status:
        return found | {"state": "failed", "error": failed or f"exit status {status}"}
    return found | {"state": "done"}


def _without(why: str) -> dict[str, Any]:
    print(f"tests: not run: {why}", flush=True)
    return {"state": "left out", "error": why}
