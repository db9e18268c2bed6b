"""Work that is too heavy for the window's process, done in a child of its own that can be cancelled at any time.

A job is a function `work(arguments, report)` of a module of the engine: `arguments` and its result are JSON. The child
says how far it is, and its result, as JSON lines on a socket; what libraries print is kept for the message
of a death. The child ends when its parent does.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import Any

from engine.config.specs import InvalidInput
from engine.jobs import spawn
from engine.jobs.progress import LoadCancelled, LoadProgress

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
    light: bool = False,
) -> Any:
    """Runs `work` ("package.module:function") in a child and returns its result; blocks.

    `report` hears LoadProgress on a thread of its own; what it raises ends the job and is raised here. Raises
    InvalidInput as the job does, LoadCancelled when `cancelled` is set, and JobDied. On cancelling, the child gets
    SIGTERM, which a job sees as LoadCancelled, and PATIENCE to tidy up. `light` work imports no torch.
    """
    outcome: dict[str, Any] = {}
    unheard: list[BaseException] = []  # what `report` raised

    def listen() -> None:
        with contextlib.suppress(ConnectionError), ours.makefile(encoding="utf-8") as lines:
            for line in lines:  # to the end, whatever `report` does: the child would block on a full socket
                message = json.loads(line)
                if "progress" not in message:
                    outcome.update(message)
                elif report is not None and not unheard:
                    try:
                        report(LoadProgress(**message["progress"]))
                    except BaseException as error:
                        unheard.append(error)

    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as printed:
        with theirs:
            start = partial(spawn.start, environment=environment, light=light, cancelled=cancelled)
            child = start("engine.jobs.job:serve", theirs, out=printed.fileno())
        listener = threading.Thread(target=listen, name="job-listener", daemon=True)
        listener.start()
        try:
            with contextlib.suppress(ConnectionError):
                ours.sendall(json.dumps([work, arguments]).encode() + b"\n")
            while True:
                try:
                    code = child.wait(GLANCE)
                    break
                except subprocess.TimeoutExpired:
                    if unheard or (cancelled is not None and cancelled.is_set()):
                        code = _end(child)
                        break
        except BaseException:
            _end(child)
            raise
        finally:
            listener.join()
        if unheard:
            raise unheard[0]
        if "result" in outcome:
            return outcome["result"]
        if cancelled is not None and cancelled.is_set():
            raise LoadCancelled("it was cancelled")
        if "refused" in outcome:
            raise InvalidInput(outcome["refused"])
        raise JobDied(outcome.get("failed") or _last_words(printed, code))


def _end(child: spawn.Child) -> int:
    child.terminate()
    try:
        return child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _last_words(printed: Any, code: int) -> str:
    printed.seek(0, os.SEEK_END)
    printed.seek(max(0, printed.tell() - LAST_WORDS))
    lines = printed.read().decode(errors="replace").strip().splitlines()
    how = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"the child process {how}" + (f": {lines[-1]}" if lines else "")


# The child.


def serve(descriptor: int) -> None:
    """The child's main."""
    link = socket.socket(fileno=descriptor)
    asked = link.makefile(encoding="utf-8")
    lock = threading.Lock()

    def say(message: dict[str, Any]) -> None:
        with lock:
            try:
                link.sendall(json.dumps(message).encode() + b"\n")
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
    if not (line := asked.readline()):
        return
    work, arguments = json.loads(line)

    def watch() -> None:
        with contextlib.suppress(OSError):
            asked.read()
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
        traceback.print_exc()
        say({"failed": f"{type(error).__name__}: {error}".splitlines()[0]})
