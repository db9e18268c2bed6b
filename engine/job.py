"""Work that is too heavy for the window's process, done in a child of its own that can be cancelled at any time.

A job is a function `work(arguments, report)` of a module of the engine: `arguments` and its result are JSON. The child
says how far it is, and its result, as JSON lines on a pipe of their own; what libraries print is kept for the message
of a death. The child ends when its parent does.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from typing import Any

from engine.config import InvalidInput
from engine.progress import LoadCancelled, LoadProgress

Report = Callable[[LoadProgress], None]
Work = Callable[[Any, Report], Any]
GLANCE = 0.05  # seconds between looks at whether it was cancelled
PATIENCE = 5.0  # seconds that a cancelled child has to tidy up
LAST_WORDS = 4000  # bytes of what it printed that are looked at for the reason of a death


class JobDied(RuntimeError):
    """The child ended without a result."""


def run_job(
    work: str,
    arguments: Any,
    report: Report | None = None,
    cancelled: threading.Event | None = None,
    environment: dict[str, str] | None = None,
) -> Any:
    """Runs `work` ("package.module:function") in a child and returns its result; blocks.

    `report` hears LoadProgress on a thread of its own; what it raises ends the job and is raised here. Raises
    InvalidInput as the job does, LoadCancelled when `cancelled` is set, and JobDied. On cancelling, the child gets
    SIGTERM, which a job sees as LoadCancelled, and PATIENCE to tidy up.
    """
    read, write = os.pipe()
    code = f"import sys; sys.path[:] = {sys.path!r}; from engine.job import serve; serve({work!r}, {write})"
    outcome: dict[str, Any] = {}
    unheard: list[BaseException] = []  # what `report` raised

    def listen() -> None:
        with os.fdopen(read, encoding="utf-8") as lines:
            for line in lines:  # to the end, whatever `report` does: the child would block on a full pipe
                message = json.loads(line)
                if "progress" not in message:
                    outcome.update(message)
                elif report is not None and not unheard:
                    try:
                        report(LoadProgress(**message["progress"]))
                    except BaseException as error:
                        unheard.append(error)

    with tempfile.TemporaryFile() as printed:
        command, environment = [sys.executable, "-c", code], {**os.environ, **(environment or {})}
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=printed, stderr=printed, pass_fds=[write], env=environment
        )
        os.close(write)
        listener = threading.Thread(target=listen, name="job-listener", daemon=True)
        listener.start()
        assert child.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(json.dumps(arguments).encode() + b"\n")
                child.stdin.flush()  # and stays open: its end tells the child that nobody waits any more
            while True:
                try:
                    child.wait(GLANCE)
                    break
                except subprocess.TimeoutExpired:
                    if unheard or (cancelled is not None and cancelled.is_set()):
                        _end(child)
                        break
        except BaseException:
            _end(child)
            raise
        finally:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
            listener.join()
        if unheard:
            raise unheard[0]
        if "result" in outcome:
            return outcome["result"]
        if cancelled is not None and cancelled.is_set():
            raise LoadCancelled("it was cancelled")
        if "refused" in outcome:
            raise InvalidInput(outcome["refused"])
        raise JobDied(outcome.get("failed") or _last_words(printed, child.returncode))


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _last_words(printed: Any, code: int) -> str:
    printed.seek(0, os.SEEK_END)
    printed.seek(max(0, printed.tell() - LAST_WORDS))
    lines = printed.read().decode(errors="replace").strip().splitlines()
    how = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"the child process {how}" + (f": {lines[-1]}" if lines else "")


# The child.


def serve(work: str, descriptor: int) -> None:
    """The child's main."""
    import signal

    out = os.fdopen(descriptor, "w", encoding="utf-8")
    lock = threading.Lock()

    def say(message: dict[str, Any]) -> None:
        with lock:
            try:
                out.write(json.dumps(message) + "\n")
                out.flush()
            except OSError:
                os._exit(1)  # the parent is gone

    terminated = threading.Event()

    def on_terminate(*_: object) -> None:
        terminated.set()
        raise LoadCancelled("it was cancelled")

    def report(progress: LoadProgress) -> None:
        if terminated.is_set():  # and a library took the exception for one of its own
            raise LoadCancelled("it was cancelled")
        say({"progress": asdict(progress)})

    signal.signal(signal.SIGTERM, on_terminate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C in a terminal is the parent's to act on
    arguments = json.loads(sys.stdin.buffer.readline())

    def watch() -> None:
        sys.stdin.buffer.read()
        os.kill(os.getpid(), signal.SIGTERM)  # the parent is gone, or waits no more
        threading.Event().wait(PATIENCE)
        os._exit(1)

    threading.Thread(target=watch, name="job-watch", daemon=True).start()
    try:
        module, _, name = work.partition(":")
        function: Work = getattr(import_module(module), name)
        say({"result": function(arguments, report)})
    except LoadCancelled:
        pass
    except InvalidInput as error:
        say({"refused": str(error)})
    except Exception as error:  # told to the parent, and printed in full for whoever debugs
        import traceback

        traceback.print_exc()
        say({"failed": f"{type(error).__name__}: {error}".splitlines()[0]})
    out.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the watch sits in its read, which the interpreter would wait for at its end
