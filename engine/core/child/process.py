"""Hosts an Engine's thread in a child process, behind the same face.

The child and the parent talk over one socket. Records cross in batches; a sender thread on either side keeps callers
and the engine from waiting for the other; a listener thread in the child answers, and ends it when the parent is gone.
The child says every second that it lives: one that is stopped is not waited for.
"""

import contextlib
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any, Unpack

from engine.config.checks import whole
from engine.config.live_budget import BudgetChanges, LiveBudget
from engine.config.plain import plain
from engine.config.specs import EngineConfig, InvalidInput, ModelSpec
from engine.config.submission import Prompt, Submission
from engine.core.child.log import Stacks, take_log
from engine.core.face import EngineFace
from engine.core.stream import Stream, StreamRouter
from engine.jobs import spawn
from engine.jobs.progress import LoadCancelled, LoadProgress
from engine.trace.records import Ended, FinishReason, ModelCard, Notice
from engine.trace.trace import Trace

CLOSE_TIMEOUT = 10.0  # seconds that a child has to end its requests and itself
PULSE = 1.0  # seconds between signs of life
GLANCE = 0.05  # seconds between looks at whether a child has ended
SILENCE = 30.0  # seconds without one after which a call gives up and ends the child; a close does after a tenth


class EngineDied(RuntimeError):
    """The engine's process ended by itself or was killed."""


class EngineProcess(EngineFace):
    """An Engine in a process of its own. The constructor returns when the model is loaded; see Engine for the rest.

    `alive` turns False when the child is gone; then every open request has ended with reason "error" and its text so
    far, and `error` says what happened. `restart` is True where that was an error of the GPU which stays with the child
    ("an illegal memory access"), or may have been, as it aborted: a fresh process can use the GPU again. What the child
    logs is logged here. Raises InvalidInput and LoadCancelled as Engine does, and EngineDied.
    """

    def __init__(
        self,
        spec: ModelSpec,
        config: EngineConfig | None = None,
        *,
        progress: Callable[[LoadProgress], None] | None = None,
        cancelled: threading.Event | None = None,
        threads: int | None = None,
        most_threads: int | None = None,
    ) -> None:
        spec, self.config = plain("spec", spec), plain("config", config or EngineConfig())
        self._budget = LiveBudget.of(self.config)
        self._progress = progress
        self._closing = False
        self._calls: dict[int, Future[Any]] = {}
        self._call_ids = count()
        self._outbox: SimpleQueue[bytes] = SimpleQueue()
        self._heard = time.monotonic()
        self._sessions: dict[int, tuple[Trace, StreamRouter]] = {}
        self._session = 0
        self.trace = self._of(0)[0]
        self._ready: Future[ModelCard] = Future()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._child = spawn.start("engine.core.child.host:serve", theirs, cancelled=cancelled, starts=True)
            self._connection = Connection(ours.detach())
        self.pid = self._child.pid
        given = self._connection, weakref.ref(self), self._child
        self._receiver = threading.Thread(target=_receive, args=given, name="engine-receiver", daemon=True)
        letters = self._connection, self._outbox
        self._sender = threading.Thread(target=_deliver, args=letters, name="engine-sender", daemon=True)
        weakref.finalize(self, _let_go, self._outbox)
        self._stacks = Stacks()
        self._send("load", spec, self.config, threads, most_threads, self._stacks.path)
        self._receiver.start()
        self._sender.start()
        try:
            while not self._ready.done():
                if cancelled is not None and cancelled.is_set():
                    raise LoadCancelled("the load was cancelled")
                with contextlib.suppress(TimeoutError):
                    self._ready.exception(timeout=0.05)
            self.card = self._ready.result()
        except BaseException:
            self._closing = True
            self._child.kill()
            self._finish()
            raise

    def _of(self, session: int) -> tuple[Trace, StreamRouter]:
        if session not in self._sessions:
            trace = Trace()
            self._sessions[session] = trace, StreamRouter(trace)
        return self._sessions[session]

    @property
    def budget(self) -> LiveBudget:
        return self._budget

    def submit_many(self, submissions: Sequence[Submission], more: bool = False) -> list[Stream]:
        now = time.perf_counter()
        stamped = [s if s.time is not None else replace(s, time=now) for s in submissions]
        return self._call("submit", (plain("prompt", stamped), more))

    def cancel(self, requests: Iterable[int] | None = None, trace: Trace | None = None) -> None:
        session = next((s for s, (known, _) in list(self._sessions.items()) if known is trace), None)
        if trace is not None and session is None:
            return  # another began since
        self._send("cancel", None if requests is None else [whole("request", i, 0) for i in requests], session)

    def steer(self, **changes: Unpack[BudgetChanges]) -> LiveBudget:
        self._budget = self._call("steer", plain("budget", dict(changes)))
        return self._budget

    def begin(self, config: EngineConfig) -> Trace:
        trace: Trace = self._call("begin", plain("config", config))
        self.config, self._budget = config, LiveBudget.of(config)
        return trace

    def encode(self, prompt: Prompt) -> list[int]:
        return list(self._call("encode", plain("prompt", prompt)))

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._call("decode", plain("tokens", list(tokens))))

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return list(self._call("pieces", plain("tokens", list(tokens))))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._send("close")
        end = time.monotonic() + CLOSE_TIMEOUT
        for _ in self._patience(SILENCE / 10, GLANCE):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(GLANCE)
                break
            if time.monotonic() > end:
                self._child.kill()
        else:
            self._child.kill()
        self._finish()

    @property
    def silence(self) -> float:
        """Seconds since its last sign of life."""
        return time.monotonic() - self._heard

    def kill(self) -> None:
        """Ends the child at once, as a crash would: its requests end with an error."""
        self._child.kill()

    def _finish(self) -> None:
        self._child.wait()
        self._outbox.put(b"")
        for thread in (self._sender, self._receiver):
            if threading.current_thread() is not thread:
                thread.join()
        self.alive = False

    def _patience(self, seconds: float, turn: float) -> Iterator[None]:
        """Turns of waiting, until the child has said nothing for so long. However long this process was halted, as a
        frozen container is, counts as one turn: the child may have been halted with it, and is to have its say."""
        heard = self._heard
        left = min(seconds, max(2 * PULSE, seconds - (time.monotonic() - heard)))
        while left > 0:
            yield
            heard, left = (heard, left - turn) if heard == self._heard else (self._heard, seconds)

    def _send(self, *message: Any) -> None:
        self._outbox.put(bytes(ForkingPickler.dumps(message)))

    def _call(self, verb: str, argument: Any) -> Any:
        if not self.alive or self._closing:
            raise InvalidInput(f"the engine is closed{': ' + self.error if self.error else ''}; load a model first")
        call, done = next(self._call_ids), Future[Any]()
        self._calls[call] = done
        self._send(verb, call, argument)
        if not self.alive and not done.done():  # it died between the check and the call
            self._calls.pop(call, None)
            raise EngineDied(self.error)
        for _ in self._patience(SILENCE, PULSE):
            with contextlib.suppress(TimeoutError):
                return done.result(PULSE)
        self.error = f"the engine's process {self.pid} said nothing for {SILENCE:.0f} s and was ended"
        self._child.kill()
        return done.result()

    # The receiver's thread.

    def _handle(self, message: tuple[Any, ...]) -> None:
        self._heard = time.monotonic()
        match message:
            case ("records", session, records):
                self._of(session)[0].extend(records)
            case ("submitted", call, session, tickets):
                router = self._of(session)[1]
                self._answer(call, [router.open(ticket, self.cancel) for ticket in tickets])
            case ("begun", call, session):
                self._sessions.pop(self._session)[0].complete = True  # whoever wants to keep it has it
                self._session, self.trace = session, self._of(session)[0]
                self._answer(call, self.trace)
            case ("told", call, answer):
                self._answer(call, answer)
            case ("refused", call, error):
                if call in self._calls:  # else it had been answered before that failed
                    self._calls.pop(call).set_exception(error)
            case ("progress", progress):
                if self._progress is not None:
                    self._progress(progress)
            case ("ready", card):
                self._ready.set_result(card)
            case ("failed", error):
                self._ready.set_exception(error)
            case ("stopped", error, restart):
                self.error, self.restart = error, restart
            case ("log", record):
                take_log(record)

    def _answer(self, call: int, result: Any) -> None:
        self._calls.pop(call).set_result(result)

    def _child_gone(self, code: int) -> None:
        self.stacks = self._stacks.close()
        self.alive = False
        if not self._closing and not self.error:
            how = f"killed by signal {signal.Signals(-code).name}" if code < 0 else f"it ended with code {code}"
            self.error = f"the engine's process {self.pid} is gone ({how})"
            card = vars(self).get("card")
            # torch aborts where a GPU that is lost refuses what may not fail.
            self.restart = code == -signal.SIGABRT and card is not None and card.device.startswith("cuda")
        trace, reason = self.trace, FinishReason.CANCELLED if self._closing else FinishReason.ERROR
        now = trace.records.latest
        for request, sample in trace.open:
            trace.append(Ended(now, request, reason, "", self.error, sample))
        self._of(self._session)[1].end_unknown(now, reason, self.error)
        if self.error:
            trace.append(Notice(now, "error", self.error))
        trace.complete = True
        died = EngineDied(self.error or "the engine was closed")
        if not self._ready.done():
            self._ready.set_exception(died)
        while self._calls:
            with contextlib.suppress(KeyError):
                self._calls.popitem()[1].set_exception(died)


# Its threads, which know it only while they do something for it: one that nobody has any more closes by itself.


def _deliver(connection: Connection, outbox: SimpleQueue[bytes]) -> None:
    """The sender's. The receiver sees the end of a dead child."""
    with contextlib.suppress(OSError, TypeError):  # a connection that is closed meanwhile has no handle any more
        while message := outbox.get():
            connection.send_bytes(message)


def _receive(connection: Connection, weak: weakref.ref[EngineProcess], child: spawn.Child) -> None:
    unread = ""
    try:
        while True:
            message = connection.recv()
            if (engine := weak()) is not None:
                engine._handle(message)
            del engine, message
    except (EOFError, OSError):
        pass
    except BaseException as error:
        unread = f"what the engine's process {child.pid} said cannot be read: {type(error).__name__}: {error}"
        child.kill()
    connection.close()
    code = child.wait()
    if (engine := weak()) is not None:
        engine.error = unread or engine.error
        engine._child_gone(code)


def _let_go(outbox: SimpleQueue[bytes]) -> None:
    outbox.put(bytes(ForkingPickler.dumps(("close",))))
    outbox.put(b"")
