"""Starts children of this process: engines and jobs. No torch here; they import it.

On Linux a server, itself a child of this process, has imported what they need and forks them: a fresh interpreter takes
seconds for that, a fork a few milliseconds. It starts when it is first asked for, runs one thread and never computes,
since neither threads nor CUDA outlive a fork. Elsewhere, and where a child needs other variables for its imports than
this process began with, it gets an interpreter of its own.

Every child holds one end of a socket of its parent's and ends when that is closed; so does the server.
"""

import atexit
import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Mapping
from typing import NoReturn, Protocol

from engine.config.checks import InvalidInput
from engine.jobs.installed import engine_missing
from engine.jobs.progress import LoadCancelled

BEGUN = dict(os.environ)  # the environment that the server has
EARLY = (  # how variables begin that libraries read while they are imported
    *("ATEN_ BATCHSCOPE_NATIVE BNB_ DNNL_ GOMP_ HF_ HOME HUGGINGFACE_ KMP_ LANG LC_ LD_ MALLOC_ MKL_ OMP_".split()),
    *("ONEDNN_ OPENBLAS_ PYTHON PYTORCH_ TORCHAO_ TORCH_ TRANSFORMERS_ TRITON_ XDG_".split()),
)
GLANCE = 0.05  # seconds between looks at whether a start was cancelled, and at whether the parent is gone
UNTOLD = 255  # the exit code of a child whose server was gone before it
TOLD = 2.0  # seconds that a server, which may be stopped, has to tell how a child has ended
CODE = struct.Struct("i")


class Child(Protocol):
    """A process that was started: `subprocess.Popen` is one."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or the signal that ended it as a negative number; raises subprocess.TimeoutExpired."""

    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def start(
    main: str,
    link: socket.socket,
    *,
    out: int | None = None,
    environment: Mapping[str, str] | None = None,
    light: bool = False,
    cancelled: threading.Event | None = None,
    starts: bool = False,
) -> Child:
    """Starts a child that calls `main` ("package.module:function") with the descriptor of its end `link` of a socket.

    It has this process's folder, `sys.path` and environment with `environment` over it, and prints where this process
    does, or to `out`. A `light` one imports no torch and does not wait for a server that still does. One that
    `starts` children itself has them forked by the same server. Raises LoadCancelled, OSError, and InvalidInput where
    what runs models is not installed, unless it is `light`.
    """
    if not light and (words := engine_missing()):
        raise InvalidInput(words)
    wanted = {**os.environ, **(environment or {})}
    for _ in range(2):
        server = _server_for(wanted, light)
        if server is None:
            break
        try:
            return server.fork(main, link, out, wanted, cancelled, starts)
        except ConnectionError:  # it was killed; the next one may live
            server.end()
        except OSError:  # the fault is here: no descriptor is free, the folder is gone
            break
    return _interpreter(f"become({main!r}, {link.fileno()})", link, wanted, out, out)


def warm_up() -> None:
    """Has the server ready for the first child, seconds from now; returns at once."""
    if not engine_missing():
        _server_for(dict(os.environ), light=False)


def assume(variables: Mapping[str, str | None]) -> None:
    """From now on it is as if the process had begun with these variables of its environment, None without: children
    come from a server that has them."""
    for name, value in variables.items():
        for environment in (os.environ, BEGUN):
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
    with _starting:
        if _server is not None and _server.conditions != _conditions(BEGUN):
            _server.end()


def server_pid() -> int | None:
    """The server's process, where one runs."""
    return _server.process.pid if isinstance(_server, Server) and _server.lives else None


def _interpreter(
    call: str, link: socket.socket, environment: Mapping[str, str], out: int | None, err: int | None
) -> subprocess.Popen[bytes]:
    """A fresh one that makes this call of this module and has `link`."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from engine.jobs import spawn; spawn.{call}"
    command, given, nothing = [sys.executable, "-c", code], [link.fileno()], subprocess.DEVNULL
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl+C is not the child's, from its first moment
    try:
        return subprocess.Popen(command, stdin=nothing, stdout=out, stderr=err, pass_fds=given, env=environment)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Forked:
    """A child of the server."""

    def __init__(self, pid: int, handle: int, told: socket.socket) -> None:
        self.pid = pid
        self._handle, self._told = handle, told
        self._code: int | None = None
        self._lock = threading.Lock()
        weakref.finalize(self, os.close, handle)

    def wait(self, timeout: float | None = None) -> int:
        over = select.poll()
        over.register(self._handle, select.POLLIN)
        if not over.poll(None if timeout is None else 1000 * timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        with self._lock:
            if self._code is None:
                self._code = UNTOLD
                with contextlib.suppress(OSError, struct.error), self._told:
                    self._told.settimeout(TOLD)
                    (self._code,) = CODE.unpack(self._told.recv(CODE.size))
            return self._code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)


class Reached:
    """The server as whoever may ask it has it: here a child to whom its parent's was handed on. A child is asked for by
    one byte and the descriptors it gets; the rest of its order goes to the child itself, over a socket on which the
    server tells its id and, in the end, its exit code."""

    def __init__(self, control: socket.socket, conditions: tuple[object, ...]) -> None:
        self.conditions, self._control = conditions, control

    @property
    def lives(self) -> bool:
        return not _hung_up(self._control)

    @property
    def ready(self) -> bool:
        """It has imported everything, or is dead: only then there is something to read."""
        return bool(select.select([self._control], [], [], 0)[0])

    def fork(
        self,
        main: str,
        link: socket.socket,
        out: int | None,
        environment: Mapping[str, str],
        cancelled: threading.Event | None,
        starts: bool = False,
    ) -> Child:
        order = pickle.dumps((main, os.getcwd(), list(sys.path), dict(environment)))
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            with theirs:
                given = [theirs.fileno(), link.fileno(), *((1, 2) if out is None else (out, out))]
                socket.send_fds(self._control, [b"!"], [*given, self._control.fileno()] if starts else given)
            ours.sendall(order)
            while not select.select([ours], [], [], GLANCE)[0]:
                if cancelled is not None and cancelled.is_set():
                    raise LoadCancelled("the load was cancelled")
            told, handles, _, _ = socket.recv_fds(ours, CODE.size, 1)
            if not handles:
                raise ConnectionError("the server is gone")
            undo.pop_all()
        return Forked(CODE.unpack(told)[0], handles[0], ours)

    def end(self) -> None:
        """It is not asked again."""
        self._control.close()

    def forget(self) -> None:
        """In a fork of this process, whose server it is not."""
        self._control.close()


class Server(Reached):
    """The server as its parent has it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours, _conditions(BEGUN))
        with theirs:
            self.process = _interpreter(f"serve({theirs.fileno()})", theirs, BEGUN, subprocess.DEVNULL, None)

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        """Children that live go on."""
        super().end()
        self.process.kill()
        self.process.wait()

    def forget(self) -> None:
        super().forget()
        self.process.returncode = 0


_server: Reached | None = None
_starting = threading.Lock()


def _server_for(environment: Mapping[str, str], light: bool) -> Reached | None:
    global _server
    if not sys.platform.startswith("linux"):
        return None
    with _starting:
        server = _server if _server is not None and _server.lives else None
        conditions = _conditions(environment)
        if server is None and not light and conditions == _conditions(BEGUN):
            if _server is None:
                atexit.register(_end)
                os.register_at_fork(after_in_child=_forget)
            else:
                _server.end()  # it was killed
            server = _server = Server()
        if server is None or server.conditions != conditions or (light and not server.ready):
            return None
        return server


def _conditions(environment: Mapping[str, str]) -> tuple[object, ...]:
    """What counts while modules are imported, and so for all children of one server."""
    return {k: v for k, v in environment.items() if k.startswith(EARLY)}, os.sched_getaffinity(0)


def _end() -> None:
    if _server is not None:
        _server.end()


def _forget() -> None:
    global _server, _starting
    server, _server, _starting = _server, None, threading.Lock()
    if server is not None:
        server.forget()


# The server.


def serve(descriptor: int) -> NoReturn:
    """The server's main, and that of its children."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    gc.disable()  # collections, all in vain, are a fifth of the time of the imports
    _import_all(control)
    gc.collect()
    gc.freeze()  # a collection would copy every page that children share with the server
    gc.enable()
    order, link, out, err, *servers = _fork_children(control)
    with socket.socket(fileno=order) as told, told.makefile("rb") as lines:
        main, folder, path, environment = pickle.load(lines)
    for descriptor, place in ((out, 1), (err, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    importlib.invalidate_caches()
    for descriptor in servers:
        _hand_on(descriptor)
    become(main, link)


def _hand_on(descriptor: int) -> None:
    """Takes the end of the server that this child may ask."""
    global _server
    _server = Reached(socket.socket(fileno=descriptor), _conditions(os.environ))
    os.register_at_fork(after_in_child=_forget)


def _import_all(control: socket.socket) -> None:
    """Whatever cannot be imported is missed by the child that needs it. Ends the process where the parent is gone: the
    thread that looks for that is gone itself before anything is forked."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a library may ask whether there is a GPU: not by using it
    done = threading.Event()

    def watch() -> None:
        while not done.wait(GLANCE):
            if _hung_up(control):
                os._exit(0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with contextlib.suppress(Exception):
        importlib.import_module("engine.core.child.preload").preload()
    done.set()
    watcher.join()
    with contextlib.suppress(OSError):
        control.send(b"!")


def _hung_up(end: socket.socket) -> bool:
    """Whoever has the other end is gone."""
    events = select.poll()
    events.register(end, 0)
    return any(event & select.POLLHUP for _, event in events.poll(0))


def _fork_children(control: socket.socket) -> list[int]:
    """Forks as asked and tells how children end, until the parent is gone. Returns in each child, with what it got."""
    children: dict[int, tuple[int, socket.socket]] = {}  # by a descriptor that can be read when one has ended
    events = select.poll()
    events.register(control, select.POLLIN)
    while True:
        for event, _ in events.poll():
            if event in children:
                events.unregister(event)
                _collect(event, *children.pop(event))
                continue
            asked, given = b"", [0]
            with contextlib.suppress(ConnectionError):
                asked, given, _, _ = socket.recv_fds(control, 1, 5, socket.MSG_CMSG_CLOEXEC)
            if not asked:
                os._exit(0)
            told = socket.socket(fileno=os.dup(given[0]))
            if _hung_up(told):  # the start was cancelled
                told.close()
            else:
                pid = os.fork()
                if not pid:
                    for end in (control, told, *(other for _, other in children.values())):
                        end.close()
                    for handle in children:
                        os.close(handle)
                    return given
                handle = os.pidfd_open(pid)
                children[handle] = pid, told
                events.register(handle, select.POLLIN)
                with contextlib.suppress(OSError):  # whoever asked is gone, and the child sees that too
                    socket.send_fds(told, [CODE.pack(pid)], [handle])
            for descriptor in given:
                os.close(descriptor)


def _collect(handle: int, pid: int, told: socket.socket) -> None:
    """A child that has ended."""
    os.close(handle)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError), told:
        told.send(CODE.pack(code))


# The child.


def become(main: str, link: int) -> NoReturn:
    """Calls `main` and ends the process: nobody waits for threads that sit in a read."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C in a terminal is the parent's to act on
    code = 1
    try:
        module, _, name = main.partition(":")
        getattr(importlib.import_module(module), name)(link)
        code = 0
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
