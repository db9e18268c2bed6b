"""The engine: a model, its scheduler and its runner, stepping on a background thread."""

import contextlib
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import Unpack

import torch

from engine.config.checks import whole
from engine.config.live_budget import BudgetChanges, LiveBudget
from engine.config.specs import EngineConfig, InvalidInput, ModelSpec
from engine.config.submission import Prompt, Submission
from engine.core.face import EngineFace
from engine.core.faults import DeviceLost, Fault, device_lost, fault_of
from engine.core.inbox import Ask, Inbox
from engine.core.intake import Intake, Prepared
from engine.core.machine import Gauge
from engine.core.prefill.beside import Beside
from engine.core.prefill.handle import PrefillWorker
from engine.core.recovery import Recovery
from engine.core.setup.assembly import Assembled, Assembly
from engine.core.setup.card import card_of
from engine.core.steering import Steering
from engine.core.stream import Stream, StreamRouter
from engine.core.threads import Turn, Turning, end_both, keep_measuring, keep_stepping, start
from engine.core.tracing.prompt_record import tell_prompts
from engine.core.tracing.step_record import NotedStep, ended_record
from engine.core.tracing.telling import Make, Telling
from engine.memory.allocator import keep_for_good, release_references
from engine.models.loading import LoadedModel, Report
from engine.models.weights import Reporter
from engine.parallel.ranks import RankLost, Ranks
from engine.runner.launched_step import LaunchedStep
from engine.scheduler.plan import StepPlan
from engine.trace.records import Ended, FinishReason, Notice, StepStarted
from engine.trace.trace import Trace

log = logging.getLogger("engine")


class Engine(EngineFace):
    """Loads `spec` and starts its thread; use it as a context manager, or call `close`.

    `progress` hears LoadProgress while it loads; setting `cancelled` ends the load with LoadCancelled. `threads` is
    how many torch uses on a CPU (None: what a step gains by, up to `most_threads`, measured at load). Raises
    InvalidInput for what the caller can mend.

    One that is dropped without `close`, and has no request that runs, closes by itself.

    `alive` turns False when the thread ends, and `error` says why. `lost`: a GPU reported an error that stays with
    this process, where no engine can use it again; so `restart` is never True here.
    """

    def __init__(
        self,
        spec: ModelSpec | LoadedModel,
        config: EngineConfig | None = None,
        *,
        progress: Report | None = None,
        cancelled: threading.Event | None = None,
        threads: int | None = None,
        most_threads: int | None = None,
    ) -> None:
        self._inbox = Inbox()
        self._stop_gauge = threading.Event()
        ready: Future[None] = Future()
        assemble = partial(Assembly, spec, progress, cancelled, threads, most_threads)
        loads = [partial(self._load, assemble, config or EngineConfig(), Reporter(progress, cancelled))]
        weak: weakref.ref[Turning] = weakref.ref(self)
        given = weak, self._inbox, loads, ready
        self._thread = threading.Thread(target=keep_stepping, args=given, name="engine", daemon=True)
        start(self._thread, self._inbox.close)
        ready.result()
        watched = weak, self._stop_gauge, card_of(self.model.device)
        self._gauge = threading.Thread(target=keep_measuring, args=watched, name="engine-telemetry", daemon=True)
        start(self._gauge, self._stop_gauge.set)
        weakref.finalize(self, end_both, self._inbox, self._stop_gauge)

    # The face.

    @property
    def budget(self) -> LiveBudget:
        return self._steer.budget

    def submit_many(self, submissions: Sequence[Submission], more: bool = False) -> list[Stream]:
        prepared = self.prepare(submissions)
        streams = [p.router.open(p.ticket, self.cancel) for p in prepared]
        self.enqueue(prepared, more)
        return streams

    def cancel(self, requests: Iterable[int] | None = None, trace: Trace | None = None) -> None:
        ids = None if requests is None else [whole("request", i, 0) for i in requests]

        def do() -> None:
            if trace is not None and trace is not self.trace:
                return
            for i in list(self.scheduler.requests) if ids is None else ids:
                request = self.scheduler.requests.get(i)
                if request is not None:
                    self.scheduler.finish(request, FinishReason.CANCELLED)

        self._inbox.post(do)

    def steer(self, **changes: Unpack[BudgetChanges]) -> LiveBudget:
        self._check_open()
        return self._steer(**changes)

    def begin(self, config: EngineConfig) -> Trace:
        self._check_open()
        done: Future[Trace] = Future()

        def do() -> None:
            before = self.config
            try:
                if not self.scheduler.requests:
                    self._drain_all()  # of those that are over, one step behind
                if not self.scheduler.idle:
                    raise InvalidInput("requests are running: wait for them or stop them before changing the engine")
                self._record_ended()  # of those that were cancelled in the same turn
                self._tell.now()
                try:
                    parts = self._build(config)
                except Exception as error:
                    if fault_of(error, self.model.device) is Fault.DEVICE:
                        raise device_lost(error) from error
                    release_references(error)  # its frames hold the pool that was being made
                    self._build(before)
                    raise
                self.trace.complete = True
                self._open_trace(parts)
                done.set_result(self.trace)
            except Exception as error:
                done.set_exception(error)
                if isinstance(error, DeviceLost):
                    raise

        self._inbox.post(do)
        while self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                return done.result(timeout=0.2)
        self._check_open()
        return done.result(timeout=0)

    def encode(self, prompt: Prompt) -> list[int]:
        return self.intake.encode(prompt).ids

    def decode(self, tokens: Sequence[int]) -> str:
        return self.intake.encode.decode(tokens)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return list(map(self._piece, tokens))

    def close(self) -> None:
        self._inbox.close()
        self._stop_gauge.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._gauge.join()
        self.alive = False

    # Submitting, on the caller's thread.

    def prepare(self, submissions: Sequence[Submission]) -> list[Prepared]:
        """Checks and tokenizes; nothing is queued yet. Raises InvalidInput."""
        self._check_open()
        return self.intake(submissions)

    def _check_open(self) -> None:
        if not self.alive or self._inbox.closed:
            raise InvalidInput(f"{self.error or 'the engine is closed'}; load a model first")

    def enqueue(self, prepared: Sequence[Prepared], more: bool = False) -> None:
        """Queues them. Where the engine was closed or began another trace meanwhile, they end as cancelled."""
        for p in prepared:
            for record in p.records:
                p.router.trace.append(record)

        def turn_away(these: Sequence[Prepared]) -> None:
            for p in these:
                for branch in p.request.branches:
                    if not branch.finished:
                        p.router.trace.append(
                            Ended(p.record.time, p.request.id, FinishReason.CANCELLED, branch=branch.index)
                        )

        def add() -> None:
            for p in prepared:
                if p.router is self.router and not p.request.finished:
                    self.scheduler.add(p.request, more)
            turn_away([p for p in prepared if p.router is not self.router])

        if not self._inbox.post(add):
            turn_away(prepared)

    # The engine's thread.

    def _load(self, assemble: Callable[[], Assembly], config: EngineConfig, say: Reporter) -> None:
        try:
            self._assembly = assemble()
            if (ranks := self._assembly.model.ranks) is not None:
                ranks.on_lost = partial(_notice_lost, self._inbox, weakref.ref(ranks))
            self.model, self.roof = self._assembly.model, self._assembly.roof
            self.card, self._piece = self.model.card, self._assembly.detokenizers.piece
            self._open_trace(self._build(config, say))
            if self.model.notice:
                self._notice("warning", self.model.notice)
        except Exception as error:
            if Fault.DEVICE in (fault_of(error), fault_of(error.__cause__ or error)):  # of an InvalidInput too
                self._lose(error)
            raise

    def _lose(self, error: Exception) -> None:
        """On a lost GPU nothing is freed any more, not even what the error holds on to: torch asks it for an event when
        pinned memory goes that a copy used, and its refusal aborts the process, before anybody is told."""
        self.lost = True
        if torch.cuda.is_initialized():
            keep_for_good((self, error))

    def _stop(self, error: str) -> None:
        """Nobody may wait for an engine that is gone."""
        self.alive, self.error = False, error
        end_both(self._inbox, self._stop_gauge)
        now = time.perf_counter() - self._origin
        self._notice("error", error)
        for request in self.scheduler.requests.values():
            for branch in request.branches:
                if not branch.finished:
                    self._tell(Ended(now, request.id, FinishReason.ERROR, "", self.error, branch.index))
        self.trace.complete = True

    def turn(self, asked: list[Ask], closed: bool) -> Turn:
        """See `Turning`."""
        try:
            if asked or closed:
                self._tell.now()  # what is asked for finds all told
            for do in asked:
                do()
            if not closed:
                waits = not self.step() or self.scheduler.idle
                if waits:
                    self._tell.now()
                return waits, self.scheduler.patience(time.perf_counter() - self._origin)
            for request in list(self.scheduler.requests.values()):
                self.scheduler.finish(request, FinishReason.CANCELLED)
            self._drain_all()
            self._record_ended()
            self._tell.now()
            self.trace.complete = True
        except Exception as error:
            if fault_of(error, self.model.device) is Fault.DEVICE:
                self._lose(error)
                self._stop(str(device_lost(error)))
                return None
            # A defect of ours.
            log.exception("the engine stopped")
            self._stop(f"the engine stopped: {type(error).__name__}: {error}")
            raise
        return None

    def step(self) -> bool:
        """Plans and launches one step, and commits one when more than `depth` are in flight or none was planned; all,
        when the step draws a token that a grammar must know before the next. False when there was neither: requests
        wait for others, or for time to pass."""
        begun = time.perf_counter()
        if self.beside is not None:
            self.beside.send()
        plan = self.scheduler.plan(begun - self._origin)
        planned = time.perf_counter()
        if plan is not None:
            tokens = sum(row.count for row in plan.rows)
            number = next(self._steps)
            started = StepStarted(begun - self._origin, number, len(plan.rows), tokens)
            self._tell_soon(lambda beside: started)
            try:
                launched = self.runner.launch(plan, self._tell.beside)
            except Exception as error:
                self.recovery.after(error, plan)
            else:
                drafting = self.prepared.draft.take_seconds() if self.prepared and self.prepared.draft else 0.0
                launched.seconds["plan"] = planned - begun - drafting
                if drafting:
                    launched.seconds["draft"] = drafting
                launched.step, launched.started = number, begun
                self.in_flight.append(launched)
                self._tell.now()  # where nothing could be told meanwhile
        else:
            self._tell.now()  # nothing computes beside which it could be told
        ahead = plan.rows if plan is not None and self.depth else ()
        waits = any(row.branch.constrained for row in ahead if row.samples)
        commits = bool(self.in_flight) and (plan is None or waits or len(self.in_flight) > self.depth)
        if commits:
            self._commit(self.in_flight.popleft())
            if waits:
                self._drain()
        elif plan is None and self.beside is not None and self.beside.busy:
            if self.beside.wait():
                self._tell_without(self.beside)
            commits = True
        elif plan is None and self.scheduler.ledger.has_changes:
            self._tell_without()
        self._record_ended()
        return commits or plan is not None

    def _commit(self, launched: LaunchedStep) -> None:
        try:
            results = launched.read()
        except Exception as error:
            self.recovery.after(error, launched.plan, launched=True)
            return
        begun = time.perf_counter()
        rows = launched.plan.rows
        if launched.plan.scored:
            for record in tell_prompts(launched, self.scheduler, self._assembly.detokenizers, begun - self._origin):
                self._tell(record)
        committed = self.scheduler.commit(launched.plan, results.emissions(launched.plan))
        if (speculation := self.scheduler.speculation) is not None:
            speculation.learn(rows, [c.accepted for c in committed], begun - launched.started)
        if self.beside is not None:
            committed = self.beside.join(launched, committed)
        ended = time.perf_counter()
        launched.seconds["commit"] = ended - begun
        self.scheduler.timed(launched.plan, ended)
        times = launched.started - self._origin, ended - self._origin
        noted = NotedStep(launched.step, *times, launched, committed, self.scheduler, self._piece)
        self._tell_soon(noted.record)
        self.recovery.went_well(launched.plan)

    def _tell_without(self, beside: Beside | None = None) -> None:
        """The record of a step in which nothing was computed here: blocks went back, or the worker `beside` is done."""
        launched = LaunchedStep(StepPlan(()), beside.begun if beside is not None else time.perf_counter())
        committed = beside.join(launched, []) if beside is not None else []
        ended = time.perf_counter() if committed else launched.started
        if launched.times is not None and (told := launched.times(launched.number)) is not None:
            launched.seconds["forward"] = told.computing[1]  # the worker's
            launched.seconds["wait"] = max(0.0, ended - launched.started - told.computing[1])
        times = launched.started - self._origin, ended - self._origin
        self._tell(NotedStep(next(self._steps), *times, launched, committed, self.scheduler, self._piece).record())

    def _drain_all(self) -> None:
        """The prefill worker's are given up: whoever they were for is over."""
        self._drain()
        if self.beside is not None and self.beside.busy:
            self.beside.abandon()
            self._tell_without()

    def _drain(self) -> None:
        while self.in_flight:
            self._commit(self.in_flight.popleft())
            self._tell.now()

    def _notice(self, level: str, text: str) -> None:
        self._tell(Notice(time.perf_counter() - self._origin, level, text))

    def _record_ended(self) -> None:
        now = time.perf_counter() - self._origin
        for branch in self.scheduler.take_ended():
            self._tell_soon(partial(ended_record, branch, now))

    def _tell_soon(self, make: Make) -> None:
        """Beside the next step, where it follows at once: drafts are computed before."""
        self._tell.later(make)
        if not self.runner.overlaps or self.scheduler.speculation is not None:
            self._tell.now()

    def _build(self, config: EngineConfig, say: Reporter | None = None) -> Assembled:
        """An empty pool and a scheduler, over a runner that is warmed up: the one there is where it serves."""
        self._drop_runner(keep=self._assembly.serves(config))
        parts = self._assembly(config, say)
        self.config, self.depth, self.draft, self.bill = config, parts.depth, parts.draft, parts.bill
        self.prepared, self.runner, self.scheduler = parts.prepared, parts.prepared.runner, parts.scheduler
        self.in_flight: deque[LaunchedStep] = deque()
        worker, card = self.prepared.worker, self.model.card_with(config.kv_dtype)
        self.beside = None
        if worker is not None:
            worker.on_lost = partial(_notice_lost, self._inbox, weakref.ref(worker))
            self.beside = Beside(self.scheduler, worker, card.kv_token_bytes, self._notice)
        self.recovery = Recovery(self.scheduler, self.runner, self.in_flight, self._drain, self._notice)
        if self.scheduler.speculation is not None:
            self.scheduler.speculation.failed = self.recovery.draft_failed
        return parts

    def _open_trace(self, parts: Assembled) -> None:
        self._steps = count()
        self._origin = time.perf_counter()
        trace = self.trace = Trace([self._assembly.header(parts)])
        self._tell = Telling(trace)
        self._steer = Steering(self.config, trace, self._origin, self.scheduler, self._inbox.post)
        self.router = StreamRouter(trace)
        pool, grammars = self.scheduler.ledger.pool, self._assembly.grammars
        self.intake = Intake(self.model, self.config, pool, self.router, self._origin, grammars)

    def measure(self, gauge: Gauge) -> None:
        """See `Turning`."""
        self.trace.append(gauge.read(time.perf_counter() - self._origin))

    def release(self, error: BaseException | None = None) -> None:
        """See `Turning`."""
        if (assembly := vars(self).get("_assembly")) is not None:
            assembly.close()
        if self.lost and torch.cuda.is_initialized():
            return
        del assembly
        self._drop_runner()
        for name in ("model", "_assembly", "in_flight", "beside"):
            vars(self).pop(name, None)
        release_references(error)
        if torch.cuda.is_initialized():
            with contextlib.suppress(RuntimeError):  # it fails with what failed before, where that stays with the GPU
                torch.cuda.empty_cache()

    def _drop_runner(self, keep: bool = False) -> None:
        """Nobody holds a cache while another is made."""
        if (scheduler := vars(self).get("scheduler")) is not None:
            scheduler.speculation = None  # its drafter has a cache too
        if not keep and (runner := vars(self).get("runner")) is not None and runner.populating is not None:
            runner.populating.stop()
        for name in () if keep else ("prepared", "runner", "recovery", "beside"):
            vars(self).pop(name, None)


def _notice_lost(inbox: Inbox, weak: weakref.ref[Ranks] | weakref.ref[PrefillWorker]) -> None:
    """An engine that is idle sees it too."""

    def check() -> None:
        try:
            if (others := weak()) is not None:
                others.check()
        except RankLost as error:
            raise device_lost(error) from error

    inbox.post(check)
