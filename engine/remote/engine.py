"""The engine of a server, with the face of one that runs here."""

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any, Unpack

from engine.config.checks import InvalidInput, whole
from engine.config.live_budget import BudgetChanges, LiveBudget
from engine.config.plain import plain
from engine.config.specs import EngineConfig
from engine.config.submission import Prompt, Submission
from engine.core.face import EngineFace
from engine.core.stream import Stream, StreamRouter, Ticket
from engine.jobs.progress import LoadCancelled
from engine.remote.address import ServerAddress
from engine.remote.asks import told
from engine.remote.frames import PROTOCOL, STATE, unpack
from engine.remote.link import ConnectionLost, Link, Refused
from engine.remote.status import TOLD, LinkStatus
from engine.trace.records import VERSION, Ended, FinishReason, Header, Notice, Record, Steered
from engine.trace.records.check import RecordCheck
from engine.trace.trace import Trace

ANSWER = 30.0  # seconds that a server may take to answer a call
BEGINNING = 20.0  # seconds that it may take to tell of its run
GLANCE = 0.05


class RemoteEngine(EngineFace):
    """An engine at a server (`batchscope serve`). The constructor returns when its run is known; see EngineFace.

    `trace` is the server's own, from a recent state on. It is another one after the server was restarted, or where this
    window fell so far behind that records are gone: the one before ends with a notice of what was lost, its open
    requests and streams with reason "error". While the connection is lost, calls raise ConnectionLost and all else
    waits. `alive` turns False where the server no longer lets this window in, or says what cannot be read. `close`
    cancels what was submitted here; the server goes on. Raises InvalidInput, ConnectionLost and LoadCancelled.
    """

    def __init__(
        self, address: ServerAddress, *, control: bool = True, cancelled: threading.Event | None = None
    ) -> None:
        self.address = address
        self._control, self._client = control, uuid.uuid4().hex
        self._calls: dict[int, tuple[str, Future[Any]]] = {}  # what was asked, and its answer
        self._ids = count()
        self._closing = False
        self._welcome: dict[str, Any] = {}
        self._connected = False
        self._run, self._position, self._end, self._took = "", 0, 0, 0
        self._state_left = 0  # records of how things stood that are still to come
        self._fresh()
        self._ready: Future[None] = Future()
        self._link = Link(address, self._hello, self._take, self._on_lost, self._on_failed)
        self._link.start()
        try:
            self._wait(cancelled)
        except BaseException:
            self.close()
            raise

    def _wait(self, cancelled: threading.Event | None) -> None:
        end = time.monotonic() + BEGINNING
        while not self._ready.done():
            if cancelled is not None and cancelled.is_set():
                raise LoadCancelled("the connection was given up")
            if time.monotonic() > end:
                raise ConnectionLost(f"{self.address.url} told nothing of its run for {BEGINNING:.0f} s")
            time.sleep(GLANCE)
        self._ready.result()

    def _fresh(self) -> None:
        self.trace, self._check = Trace(), RecordCheck()
        self._router = StreamRouter(self.trace)

    @property
    def status(self) -> LinkStatus:
        said = self._welcome
        behind = max(0, self._end - self._position) + self._state_left
        about = {name: said[name] for name in TOLD if name in said}
        return LinkStatus(self._connected, behind, **about)

    @property
    def budget(self) -> LiveBudget:
        return self._budget

    def submit_many(self, submissions: Sequence[Submission], more: bool = False) -> list[Stream]:
        self._controls()
        streams: list[Stream] = self._call("submit", submissions=[told(one) for one in submissions], more=more)
        return streams

    def cancel(self, requests: Iterable[int] | None = None, trace: Trace | None = None) -> None:
        if self.status.observes or (trace is not None and trace is not self.trace):
            return
        ids = None if requests is None else [whole("request", i, 0) for i in requests]
        if self.alive and not self._closing:
            with contextlib.suppress(ConnectionLost):  # they go on, and can be stopped when it is there again
                self._link.say({"do": "cancel", "requests": ids})

    def steer(self, **changes: Unpack[BudgetChanges]) -> LiveBudget:
        self._controls()
        budget: LiveBudget = self._call("steer", **plain("budget", dict(changes)))
        self._budget = budget
        return budget

    def take_control(self) -> None:
        """From a server where nobody has it. Raises InvalidInput with who has it, or why this window may not."""
        self._call("control", take=True)

    def give_control_back(self) -> None:
        """Another window may take it; what this one has sent goes on."""
        self._call("control", take=False)

    def begin(self, config: EngineConfig) -> Trace:
        said = "is set where it is started; its live budget can be moved, and its trace goes on"
        raise InvalidInput(f"config: what the server at {self.address.url} runs with {said}")

    def encode(self, prompt: Prompt) -> list[int]:
        return list(self._call("encode", given=plain("prompt", prompt)))

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._call("decode", given=plain("tokens", list(tokens))))

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return list(self._call("pieces", given=plain("tokens", list(tokens))))

    def close(self) -> None:
        if not self._closing and self._connected:
            with contextlib.suppress(ConnectionLost):
                if own := list(self._router.streams):
                    self._link.say({"do": "cancel", "requests": own})
                self._link.say({"do": "bye"})
        self._closing = True
        self._link.close()
        if self.alive:
            self.alive = False
            self._finish(FinishReason.CANCELLED, "")

    def _controls(self) -> None:
        if why := self.status.observes:
            raise InvalidInput(why)

    def _call(self, verb: str, **given: Any) -> Any:
        if not self.alive or self._closing:
            raise InvalidInput(f"the server is left{': ' + self.error if self.error else ''}; connect to it again")
        call, done = next(self._ids), Future[Any]()
        self._calls[call] = verb, done
        try:
            self._link.say({"do": verb, "call": call, **given})
            return done.result(ANSWER)
        except TimeoutError:
            raise ConnectionLost(f"{self.address.url} has not answered for {ANSWER:.0f} s") from None
        finally:
            self._calls.pop(call, None)

    # -- on the link's thread -------------------------------------------------------------------------------------

    def _hello(self) -> dict[str, Any]:
        self._took = 0
        run = "" if self._state_left else self._run
        about = {"protocol": PROTOCOL, "records": VERSION, "client": self._client, "control": self._control}
        return {"do": "hello", **about, "run": run, "position": self._position}

    def _take(self, message: str | bytes) -> None:
        """Raises ValueError for what no server says."""
        if isinstance(message, bytes):
            self._records(message)
            return
        said = json.loads(message)
        match said:
            case {"say": "told", "call": int(call), "answer": answer}:
                self._answer(call, answer)
            case {"say": "at", "end": int(end)}:
                self._end = end
            case {"say": "refused", "call": int(call), "why": str(why)}:
                if call < 0:
                    raise Refused(f"{self.address.url}: {why[:500]}")
                if call in self._calls:
                    self._calls[call][1].set_exception(InvalidInput(why[:2000]))
            case {"say": "welcome", "protocol": protocol, "records": records} if (protocol, records) != (
                PROTOCOL,
                VERSION,
            ):
                raise Refused(f"{self.address.url} speaks another version; update what is older")
            case {"say": "welcome", "model": str(), "caller": str(), "replicas": int()}:
                self._stands(said)
                self._connected = True
            case {"say": "stands"}:
                self._stands(said)
            case {"say": "resume", "position": self._position}:
                pass
            case {"say": "begin", "run": str(run), "position": int(position), "state": int(state), "lost": int(lost)}:
                self._begin(run, position, state, lost, said.get("why") == "texts")
            case _:
                raise ValueError(f"{self.address.url} said what cannot be read: {message[:60]!r}")

    def _stands(self, said: dict[str, Any]) -> None:
        """What this window may do. Who has no control asks for it no more when it comes back: a person does."""
        match said:
            case {"observes": str(observes), "texts": bool(), "barred": bool(), "holder": str() | None}:
                self._welcome = self._welcome | said
                self._control = not observes
            case _:
                raise ValueError(f"{self.address.url} said what cannot be read: {str(said)[:60]!r}")

    def _begin(self, run: str, position: int, state: int, lost: int, reads: bool) -> None:
        if self._run and not self._state_left and self.trace.records:
            level = "error"
            if run != self._run:
                running = len({request for request, _ in self.trace.open})
                which = "request that ran there was" if running == 1 else "requests that ran there were"
                how = f"the {running:,} {which} lost" if running else "nothing ran there"
                why = f"the server at {self.address.url} was restarted: {how}; what follows is its new run"
            elif reads:
                why = "this window reads along from here: what runs is shown anew, with its texts"
                level = "info"
            else:
                why = f"this window fell too far behind: {max(lost, 0):,} records of the server were not seen"
            self._finish(FinishReason.ERROR, why, level)
        if self.trace.records:
            self._fresh()
        self._run, self._position, self._state_left = run, position, max(state, 0)

    def _records(self, frame: bytes) -> None:
        at, records = unpack(frame)
        if at == STATE:
            self._state_left -= len(records)
        elif at == self._position:
            self._position += len(records)
        else:
            raise ValueError(f"{self.address.url} sent records out of order")
        self._end = max(self._end, self._position)
        for record in records:
            try:
                self._check(record)
            except ValueError as error:
                raise ValueError(f"{self.address.url} sent what no run can have: {error}") from error
            self._note(record)
            self.trace.append(record)
        if self.trace.records and not self._ready.done():
            self._ready.set_result(None)
        self._took += len(frame)
        self._link.say({"do": "took", "bytes": self._took})

    def _note(self, record: Record) -> None:
        match record:
            case Header():
                self.config, self.card, self._budget = record.config, record.model, LiveBudget.of(record.config)
            case Steered():
                budget = record.token_budget, record.max_running, record.prefill_share, record.target_itl
                self._budget = LiveBudget(*budget)
            case _:
                pass

    def _answer(self, call: int, answer: Any) -> None:
        verb, done = self._calls.pop(call, ("", None))
        if verb == "submit":
            answer = [self._router.open(Ticket(**ticket), self.cancel) for ticket in answer]
        elif verb == "steer":
            answer = LiveBudget(**answer)
        if done is not None:
            done.set_result(answer)

    def _on_lost(self) -> None:
        self._connected = False
        lost = f"the connection to {self.address.url} was lost before it answered"
        for _, done in list(self._calls.values()):
            if not done.done():
                done.set_exception(ConnectionLost(lost))

    def _on_failed(self, why: str) -> None:
        self._on_lost()
        self.error, self.alive = why, False
        self._finish(FinishReason.ERROR, why)
        if not self._ready.done():
            self._ready.set_exception(InvalidInput(why))

    def _finish(self, reason: FinishReason, why: str, level: str = "error") -> None:
        """The trace as it is is all there will be."""
        trace = self.trace
        now = trace.records.times[-1] if trace.records else 0.0
        for request, sample in trace.open:
            trace.append(Ended(now, request, reason, "", why, sample))
        self._router.end_unknown(now, reason, why)
        if why:
            trace.append(Notice(now, level, why))
        trace.complete = True
