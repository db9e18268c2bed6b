"""The child of an EngineProcess: an Engine, and its side of the socket."""

import logging
import os
import threading
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from engine.config.specs import InvalidInput
from engine.core import garbage
from engine.core.child.log import leave_stacks, send_log
from engine.core.child.process import PULSE, EngineDied
from engine.jobs.progress import LoadCancelled
from engine.trace.trace import Trace

if TYPE_CHECKING:
    from engine.core.engine import Engine

log = logging.getLogger("engine")
BATCH_INTERVAL = 0.016  # seconds between batches of records


def serve(descriptor: int) -> None:
    """The child's main: loads, then answers until told to close or the parent is gone."""
    Host(Connection(descriptor)).main()


class Host:
    """The child's side of the socket."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._send_lock = threading.RLock()  # what is sent may warn of something, which is sent too
        self._engine: Engine | None = None
        self._traces: dict[int, Trace] = {}  # by session, those that have records to be sent
        self._last = 0
        self._begun: dict[int, int] = {}  # session: the call to answer when its header is on its way
        self._current = self._sent = 0  # the session whose records are being sent, and how many were
        self._closing = threading.Event()

    def main(self) -> None:
        garbage.Process.engines = True
        _, spec, config, threads, most, stacks = self._connection.recv()
        leave_stacks(stacks)
        send_log(self._send)
        for task in (self._listen, self._pulse):  # before the load, so that a parent that goes away is noticed
            threading.Thread(target=task, name=task.__name__.strip("_"), daemon=True).start()
        try:
            from engine.core import import_engine

            engine = import_engine()
            log.info("loading %s as %s on %s", spec.source, spec.quantization, spec.device)
            say = partial(self._send, "progress")
            self._engine = engine(spec, config, progress=say, threads=threads, most_threads=most)
        except (InvalidInput, LoadCancelled) as error:
            self._send("failed", error)
            return
        except Exception as error:
            log.exception("loading failed")
            self._send("failed", EngineDied(f"loading failed: {type(error).__name__}: {error}"))
            raise
        self._traces[0] = self._engine.trace
        self._drain()
        log.info("%s is loaded", self._engine.card.name)
        self._send("ready", self._engine.card)
        while not self._closing.wait(BATCH_INTERVAL):
            alive = self._engine.alive
            self._drain()
            if not alive:  # a lost device or a defect of ours ended its thread; the process goes too, and says why
                self._send("stopped", self._engine.error, self._engine.lost)
                os._exit(1)
        self._engine.close()
        self._drain()
        os._exit(0)  # nothing is left to say, and the listener would hold the interpreter in its read

    def _send(self, *message: Any) -> None:
        try:
            with self._send_lock:
                self._connection.send(message)
        except OSError:
            os._exit(1)  # the parent is gone

    def _drain(self) -> None:
        """Sends what is new, of one session after another."""
        while True:
            session = self._current
            trace = self._traces[session]
            last = session == self._last
            new = trace.since(self._sent)
            if new:
                self._sent += len(new)
                self._send("records", session, new)
                trace.forget(self._sent)  # nobody here reads it again
                if session in self._begun:
                    self._send("begun", self._begun.pop(session), session)
            elif last:
                return
            else:
                self._current, self._sent = session + 1, 0
                del self._traces[session]

    def _listen(self) -> None:
        try:
            while True:
                self._act(self._connection.recv())
        except (EOFError, OSError):
            os._exit(1)
        except BaseException as error:  # nobody else would listen
            self._send("stopped", f"what it was told cannot be read: {type(error).__name__}: {error}", False)
            os._exit(1)

    def _pulse(self) -> None:
        while True:
            self._send("alive")
            time.sleep(PULSE)

    def _act(self, message: tuple[Any, ...]) -> None:
        engine = self._engine
        match message:
            case ("close",):
                self._closing.set()
            case ("cancel", requests, session):
                if engine is not None and session in (None, self._last):
                    engine.cancel(requests)
            case (verb, call, argument):
                assert engine is not None
                try:
                    if verb == "submit":
                        submissions, more = argument
                        prepared = engine.prepare(submissions)
                        self._send("submitted", call, self._last, [p.ticket for p in prepared])
                        engine.enqueue(prepared, more)
                    elif verb == "steer":
                        self._send("told", call, engine.steer(**argument))
                    elif verb in ("encode", "decode", "pieces"):
                        self._send("told", call, getattr(engine, verb)(argument))
                    elif verb == "begin":
                        trace = engine.begin(argument)
                        self._begun[self._last + 1] = call
                        self._traces[self._last + 1] = trace
                        self._last += 1
                except InvalidInput as error:
                    self._send("refused", call, error)
                except BaseException as error:  # a library's panic is no Exception
                    self._send("refused", call, EngineDied(f"{type(error).__name__}: {error}"))
