"""Commands in a process of their own that has what an engine needs imported: the server that forks engines forks them
too, and theirs. A fresh interpreter takes five seconds, and its own server five more. How a command begins and ends
there, `app/cli/test_ends.py` looks at."""

import atexit
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from subprocess import CompletedProcess
from tempfile import TemporaryFile
from typing import IO

from engine.jobs import spawn


class Command:
    """`python -m MODULE ARGUMENTS`, as far as it is asked for like a `subprocess.Popen`."""

    def __init__(self, line: Sequence[str], err: IO[str] | None = None, **environment: str) -> None:
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        self.stdout = os.fdopen(read)
        with ours, os.fdopen(write, "w") as out:
            with theirs:
                self._child = spawn.start("tests.commands:run", theirs, environment=environment, starts=True)
            self.pid, self.wait, self.kill = self._child.pid, self._child.wait, self._child.kill
            err = sys.__stderr__ if err is None else err
            socket.send_fds(ours, [json.dumps(line).encode()], [out.fileno(), err.fileno()])

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.kill()
        self.wait()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def ended(line: Sequence[str], timeout: float = 110) -> CompletedProcess[str]:
    """What a command said, once it has ended."""
    with TemporaryFile("w+") as err, Command(line, err) as command:
        out = command.stdout.read()
        code = command.wait(timeout)
        err.seek(0)
        return CompletedProcess(line, code, out, err.read())


def run(link: int) -> None:
    """The child's main: the command's, in a process like a fresh one."""
    with socket.socket(fileno=link) as order:
        line, descriptors, _, _ = socket.recv_fds(order, 1 << 16, 2)
    for place, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, place)
        os.close(descriptor)
    sys.stdout, sys.stderr = (os.fdopen(place, "w", closefd=False) for place in (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = json.loads(line)
    status = 0
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
