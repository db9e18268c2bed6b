"""The engine: a model, its scheduler and its runner, stepping on a background thread."""

import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count

import numpy as np
import torch

from engine.config.checks import whole
from engine.config.live_budget import LiveBudget
from engine.config.specs import EngineConfig, InvalidInput, ModelSpec, Submission
from engine.core import last_threads, machine
from engine.core.face import EngineFace
from engine.core.faults import DeviceLost, Fault, fault_of, first_line
from engine.core.inbox import Ask, Inbox
from engine.core.intake import Intake, Prepared
from engine.core.nvml import Card
from engine.core.recovery import Recovery
from engine.core.setup.card import card_of
from engine.core.setup.drafts import Drafts
from engine.core.setup.memory_breakdown import bill_of
from engine.core.setup.roof import roof_of
from engine.core.setup.run_machine import machine_of
from engine.core.setup.runner_factory import PreparedRunner, RunnerFactory
from engine.core.setup.thread_choice import fastest_threads
from engine.core.steering import Steering
from engine.core.step_record import ended_record, prompt_record, step_record
from engine.core.stream import Stream, StreamRouter
from engine.decoding.constraints import Grammars
from engine.decoding.detokenizer import DetokenizerFactory
from engine.memory.allocator import give_back, keep_freed_memory, release_references
from engine.models.loading import LoadedModel, Report, load
from engine.models.weights import Reporter
from engine.runner.launched_step import LaunchedStep
from engine.scheduler.ngram_drafter import NgramDrafter
from engine.scheduler.plan import StepPlan
from engine.scheduler.scheduler import NO_NUMBER
from engine.trace.records import Ended, FinishReason, Header, Notice, StepStarted
from engine.trace.trace import Trace

TELEMETRY_INTERVAL = 0.5  # seconds


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
        self._threads, self._most_threads = threads, most_threads
        self._threads_why = "" if threads is None else "as asked"
        self._inbox = Inbox()
        self._stop_gauge = threading.Event()
        ready: Future[None] = Future()
        weak, loads = weakref.ref(self), [partial(self._load, spec, config or EngineConfig(), progress, cancelled)]
        given = weak, self._inbox, loads, ready
        self._thread = threading.Thread(target=_live, args=given, name="engine", daemon=True)
        last_threads.start(self._thread, self._inbox.close)
        ready.result()
        watched = weak, self._stop_gauge, card_of(self.model.device)
        self._gauge = threading.Thread(target=_watch, args=watched, name="engine-telemetry", daemon=True)
        last_threads.start(self._gauge, self._stop_gauge.set)
        weakref.finalize(self, _let_go, self._inbox, self._stop_gauge)

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

    def steer(
        self, token_budget: int | None = None, max_running: int | None = None, prefill_share: float | None = None
    ) -> LiveBudget:
        self._check_open()
        return self._steer(token_budget, max_running, prefill_share)

    def begin(self, config: EngineConfig) -> Trace:
        self._check_open()
        done: Future[Trace] = Future()

        def do() -> None:
            before = self.config
            try:
                if not self.scheduler.requests:
                    self._drain()  # of those that are over, one step behind
                if not self.scheduler.idle:
                    raise InvalidInput("requests are running: wait for them or stop them before changing the engine")
                self._record_ended()  # of those that were cancelled in the same turn
                try:
                    self._build(config)
                except DeviceLost:
                    raise
                except Exception as error:
                    release_references(error)  # its frames hold the pool that was being made
                    self._build(before)
                    raise
                self.trace.complete = True
                self._open_trace()
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
            p.router.trace.append(p.record)
            if p.request.scores is not None and p.request.scores.whole:  # a prompt of one token
                p.router.trace.append(prompt_record(p.request, p.record.time, self._detokenizers()))

        def turn_away(these: Sequence[Prepared]) -> None:
            for p in these:
                for branch in p.request.branches:
                    p.router.trace.append(
                        Ended(p.record.time, p.request.id, FinishReason.CANCELLED, branch=branch.index)
                    )

        def add() -> None:
            for p in prepared:
                if p.router is self.router:
                    self.scheduler.add(p.request, more)
            turn_away([p for p in prepared if p.router is not self.router])

        if not self._inbox.post(add):
            turn_away(prepared)

    # The engine's thread.

    def _load(
        self,
        spec: ModelSpec | LoadedModel,
        config: EngineConfig,
        progress: Report | None,
        cancelled: threading.Event | None,
    ) -> None:
        """Loads and warms up here, where the steps will run: each thread that computes has an OpenMP team of its own,
        and two teams on the same cores halve each other's speed."""
        keep_freed_memory()
        most = self._threads or min(torch.get_num_threads(), self._most_threads or torch.get_num_threads())
        torch.set_num_threads(most)
        self.model = spec if isinstance(spec, LoadedModel) else load(spec, progress, cancelled)
        if self.model.device.index is not None:
            torch.cuda.set_device(self.model.device)  # of this thread
        self.card = self.model.card
        self._detokenizers = DetokenizerFactory(self.model.tokenizer)
        self._piece = self._detokenizers.piece
        self._grammars = Grammars(self.model.tokenizer, self.card.vocabulary, self.model.eos)
        self._runtime = max(0, machine.resident() - self.card.weight_bytes)
        if self._threads is None:
            self._threads = torch.get_num_threads()
            if self.model.device.type == "cpu":
                self._threads, self._threads_why = fastest_threads(self.model, self._detokenizers)
        self.roof = roof_of(self.model, self._threads)
        self.prepared: PreparedRunner | None = None
        self._prepare_runner, self._drafts = (
            RunnerFactory(self.model, self._detokenizers, self.roof),
            Drafts(self.model),
        )
        self._build(config, Reporter(progress, cancelled))
        self._open_trace()
        if self.model.notice:
            self._notice("warning", self.model.notice)

    def _stop(self, error: str) -> None:
        """Nobody may wait for an engine that is gone."""
        self.alive, self.error = False, error
        self._inbox.close()
        now = time.perf_counter() - self._origin
        self._notice("error", error)
        for request in self.scheduler.requests.values():
            for branch in request.branches:
                if not branch.finished:
                    self.trace.append(Ended(now, request.id, FinishReason.ERROR, "", self.error, branch.index))
        self.trace.complete = True

    def _turn(self, asked: list[Ask], closed: bool) -> tuple[bool, float | None] | None:
        """Does what was asked, and a step. Returns whether to wait for what is asked next, and how many seconds at
        most (None: for ever); nothing when this was the end."""
        try:
            for do in asked:
                do()
            if not closed:
                stepped = self.step()
                patience = self.scheduler.patience(time.perf_counter() - self._origin)
                return not stepped or self.scheduler.idle, patience
            for request in list(self.scheduler.requests.values()):
                self.scheduler.finish(request, FinishReason.CANCELLED)
            self._drain()
            self._record_ended()
            self.trace.complete = True
        except DeviceLost as error:
            self.lost = True
            self._stop(str(error))
        except Exception as error:  # a defect of ours
            self._stop(f"the engine stopped: {type(error).__name__}: {error}")
            raise
        return None

    def step(self) -> bool:
        """Plans and launches one step, and commits one when more than `depth` are in flight or none was planned; all,
        when the step draws a token that a grammar must know before the next. False when there was neither: requests
        wait for others, or for time to pass."""
        begun = time.perf_counter()
        plan = self.scheduler.plan(begun - self._origin)
        planned = time.perf_counter()
        if plan is not None:
            tokens = sum(row.count for row in plan.rows)
            number = next(self._steps)
            self.trace.append(StepStarted(begun - self._origin, number, len(plan.rows), tokens))
            try:
                launched = self.runner.launch(plan)
            except Exception as error:
                self.recovery.after(error, plan)
            else:
                drafting = self.prepared.draft.take_seconds() if self.prepared and self.prepared.draft else 0.0
                launched.seconds["plan"] = planned - begun - drafting
                if drafting:
                    launched.seconds["draft"] = drafting
                launched.step, launched.started = number, begun
                self.in_flight.append(launched)
        ahead = plan.rows if plan is not None and self.depth else ()
        waits = any(row.branch.constrained for row in ahead if row.samples)
        commits = bool(self.in_flight) and (plan is None or waits or len(self.in_flight) > self.depth)
        if commits:
            self._commit(self.in_flight.popleft())
            if waits:
                self._drain()
        elif plan is None and self.scheduler.ledger.has_changes:
            now, nothing = time.perf_counter() - self._origin, LaunchedStep(StepPlan(()), begun)
            self.trace.append(step_record(next(self._steps), now, now, nothing, [], self.scheduler, self._piece))
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
            self._tell_prompts(launched)
        committed = self.scheduler.commit(launched.plan, results.emissions(launched.plan))
        if (speculation := self.scheduler.speculation) is not None:
            speculation.learn(rows, [c.accepted for c in committed], begun - launched.started)
        ended = time.perf_counter()
        launched.seconds["commit"] = ended - begun
        times = launched.started - self._origin, ended - self._origin
        self.trace.append(step_record(launched.step, *times, launched, committed, self.scheduler, self._piece))
        self.recovery.went_well(launched.plan)

    def _tell_prompts(self, launched: LaunchedStep) -> None:
        """Takes what a step says of prompts; those that are told of whole are recorded, before their requests end."""
        launched.tell_scores()
        for request in dict.fromkeys(row.branch.request for row, _ in launched.plan.scored):
            if request.unscored or request.finished or request.scores is None:
                continue
            if np.isnan(request.scores.logprobs).any():
                self.scheduler.finish(request, FinishReason.ERROR, NO_NUMBER)
                continue
            self.trace.append(prompt_record(request, time.perf_counter() - self._origin, self._detokenizers()))

    def _draft_failed(self, error: Exception) -> None:
        """The run goes on without drafts: what is said does not depend on them."""
        if fault_of(error, self.model.device) is Fault.DEVICE:
            raise DeviceLost(f"the GPU reported an unrecoverable error ({first_line(error)})") from error
        self._notice("warning", f"drafting failed: {first_line(error)}; the run goes on without drafts")
        release_references(error)
        self.scheduler.speculation = None

    def _drain(self) -> None:
        while self.in_flight:
            self._commit(self.in_flight.popleft())

    def _notice(self, level: str, text: str) -> None:
        self.trace.append(Notice(time.perf_counter() - self._origin, level, text))

    def _record_ended(self) -> None:
        now = time.perf_counter() - self._origin
        for branch in self.scheduler.take_ended():
            self.trace.append(ended_record(branch, now))

    def _build(self, config: EngineConfig, say: Reporter | None = None) -> None:
        """An empty pool and a scheduler, over a runner that is warmed up: the one there is where it serves."""
        say = say or Reporter(None, None)
        draft = self._drafts(config, say)
        self.config = config
        ahead = int(self.model.device.type == "cuda" and config.speculation is None)
        self.depth = config.depth if config.depth is not None else ahead
        if self.prepared is None or not self.prepared.serves(config):
            for name in ("runner", "recovery"):
                vars(self).pop(name, None)
            self.prepared = None  # the old cache is given back before the new one is made
            self.prepared = self._prepare_runner(config, partial(say, "capturing graphs"), draft)
        self.runner, blocks = self.prepared.runner, self.prepared.blocks
        self.draft = draft.card_with(config.kv_dtype) if draft is not None else None
        token_bytes = self.model.card_with(config.kv_dtype).kv_token_bytes
        token_bytes += self.draft.kv_token_bytes if self.draft else 0
        drafts = self.draft.weight_bytes if self.draft else 0
        held = blocks * config.block_size * token_bytes, self.prepared.activations, self._runtime, self.prepared.graphs
        self.bill = bill_of(self.model, *held, drafts)
        self.prepared.warm_up(config.token_budget)
        drafter = NgramDrafter() if config.speculation == "ngram" else self.prepared.draft
        self.scheduler = self.prepared.scheduler(config, drafter)
        if self.scheduler.speculation is not None:
            self.scheduler.speculation.failed = self._draft_failed
        self.in_flight: deque[LaunchedStep] = deque()
        self.recovery = Recovery(self.scheduler, self.runner, self.in_flight, self._drain, self._notice)

    def _open_trace(self) -> None:
        self._steps = count()
        self._origin = time.perf_counter()
        header = Header(
            model=self.model.card_with(self.config.kv_dtype),
            config=self.config,
            machine=machine_of(self.model, self._threads or 1, self._threads_why),
            versions=machine.versions(),
            created=time.time(),
            blocks=self.scheduler.ledger.pool.total,
            depth=self.depth,
            roof=self.roof,
            bill=self.bill,
            graphs=self.runner.graphs,
            graphs_off=self.runner.graphs_off,
            mixed_graphs=self.runner.mixed_graphs,
            mixed_off=self.runner.mixed_off,
            draft=self.draft,
            host_blocks=self.scheduler.ledger.swapping.total,
            swap_rate=self.prepared.host.rate if self.prepared else 0.0,
        )
        trace = self.trace = Trace([header])
        self._steer = Steering(self.config, trace, self._origin, self.scheduler, self._inbox.post)
        self.router = StreamRouter(trace)
        pool = self.scheduler.ledger.pool
        self.intake = Intake(self.model, self.config, pool, self.router, self._origin, self._grammars)


# The threads know their engine only while they do something for it: one that nobody has any more ends them.


def _live(weak: weakref.ref[Engine], inbox: Inbox, loads: list[Callable[[], None]], ready: Future[None]) -> None:
    """The engine's thread, which loads first."""
    try:
        loads.pop()()
    except BaseException as error:
        if (engine := weak()) is not None:  # who keeps the error keeps the engine
            _give_back(engine)
        release_references(error)
        ready.set_exception(error)
        return
    ready.set_result(None)
    waits: tuple[bool, float | None] | None = (False, None)
    while waits is not None:
        asked, closed = inbox.take(*waits)
        engine = weak()
        waits = engine._turn(asked, closed) if engine is not None else None
        if engine is not None and waits is None:
            _give_back(engine)
        del asked, engine


def _give_back(engine: Engine) -> None:
    """Whoever keeps an engine that has ended keeps none of its memory: another model may be loaded next."""
    if (scheduler := vars(engine).get("scheduler")) is not None:
        scheduler.speculation = None
    for name in ("model", "runner", "recovery", "prepared", "_prepare_runner", "_drafts", "in_flight"):
        vars(engine).pop(name, None)
    give_back()
    if torch.cuda.is_initialized() and not engine.lost:
        torch.cuda.empty_cache()


def _watch(weak: weakref.ref[Engine], stop: threading.Event, card: Card | None) -> None:
    """The thread that measures the machine."""
    gauge = machine.Gauge(card)
    while not stop.wait(TELEMETRY_INTERVAL) and (engine := weak()) is not None:
        engine.trace.append(gauge.read(time.perf_counter() - engine._origin))
        del engine


def _let_go(inbox: Inbox, stop: threading.Event) -> None:
    inbox.close()
    stop.set()
