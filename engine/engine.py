"""The engine: a model, its scheduler and its runner, stepping on a background thread."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch

from engine import machine
from engine.allocator import keep_freed_memory
from engine.blocks import BlockPool, blocks_for
from engine.config import PAGED_MODES, EngineConfig, InvalidInput, ModelSpec, Prompt, SamplingParams, Submission
from engine.decoding.detokenizer import DetokenizerFactory
from engine.decoding.output import Output
from engine.models.launched import Launched, Results
from engine.models.loading import LoadedModel, Report, load
from engine.models.padded_runner import PaddedRunner
from engine.models.paged_runner import PagedRunner
from engine.plan import StepPlan
from engine.prompts import PromptEncoder
from engine.rehearsal import ROWS, Rehearsal
from engine.request import Branch, Emission, Request
from engine.run import Run
from engine.scheduler import Scheduler
from engine.step_record import step_record
from engine.stream import Stream, StreamRouter, Ticket
from engine.trace.records import Ended, FinishReason, Header, Notice, StepStarted, Submitted, freeze
from engine.trace.trace import Trace
from engine.workload import Workload

TELEMETRY_INTERVAL = 0.5  # seconds


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked and tokenized submission, ready for the engine's thread, on the trace it was checked for."""

    request: Request
    record: Submitted
    router: StreamRouter

    @property
    def ticket(self) -> Ticket:
        return Ticket(self.request.id, self.record.time, self.request.prompt_length, self.request.params.n)


class Engine:
    """Loads `spec` and starts its thread; use it as a context manager, or call `close`.

    `progress` hears LoadProgress while it loads; setting `cancelled` ends the load with LoadCancelled. `threads` is
    how many torch uses on a CPU (None: the fastest, measured at load). Raises InvalidInput for what the caller can
    mend.
    """

    def __init__(
        self,
        spec: ModelSpec | LoadedModel,
        config: EngineConfig | None = None,
        *,
        progress: Report | None = None,
        cancelled: threading.Event | None = None,
        threads: int | None = None,
    ) -> None:
        self._threads = threads
        self.alive, self.error = True, ""
        self._ids = count()
        self._wake = threading.Condition()
        self._inbox: deque[Callable[[], None]] = deque()
        self._closing = False
        self._stop_gauge = threading.Event()
        ready: Future[None] = Future()

        def live() -> None:
            try:
                self._load(spec, config or EngineConfig(), progress, cancelled)
            except BaseException as error:
                ready.set_exception(error)
            else:
                ready.set_result(None)
                self._loop()

        self._thread = threading.Thread(target=live, name="engine", daemon=True)
        self._thread.start()
        ready.result()
        self._gauge = threading.Thread(target=self._watch, name="engine-telemetry", daemon=True)
        self._gauge.start()

    # The face.

    def submit(self, prompt: Prompt, params: SamplingParams | None = None, label: str = "") -> Stream:
        """Queues one prompt: text, token ids or chat messages. Never waits for the model; safe from any thread."""
        return self.submit_many([Submission(prompt, params or SamplingParams(), label=label)])[0]

    def submit_many(self, submissions: Sequence[Submission], more: bool = False) -> list[Stream]:
        """Queues several at once, or none: raises InvalidInput naming the first that cannot be taken.

        `more` says that others follow without waiting for these to end: a static batch then waits until it is full.
        """
        prepared = self.prepare(submissions)
        streams = [p.router.open(p.ticket) for p in prepared]
        self.enqueue(prepared, more)
        return streams

    def cancel(self, requests: Iterable[int] | None = None) -> None:
        """Ends these requests, or all, at the next step's border. Ids that are over already are passed by."""
        ids = None if requests is None else list(requests)

        def do() -> None:
            for i in list(self.scheduler.requests) if ids is None else ids:
                request = self.scheduler.requests.get(i)
                if request is not None:
                    self.scheduler.finish(request, FinishReason.CANCELLED)

        self._post(do)

    def begin(self, config: EngineConfig) -> Trace:
        """A fresh trace under `config`, on the same weights, with an empty pool.

        Raises InvalidInput while requests run, and for a config that does not fit; the one before then stays.
        """
        self._check_open()
        done: Future[Trace] = Future()

        def do() -> None:
            before = self.config
            try:
                if not self.scheduler.idle:
                    raise InvalidInput("requests are running: wait for them or stop them before changing the engine")
                try:
                    self._build(config)
                except Exception:
                    self._build(before)
                    raise
                self.trace.complete = True
                self._open_trace()
                done.set_result(self.trace)
            except Exception as error:
                done.set_exception(error)

        self._post(do)
        while self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                return done.result(timeout=0.2)
        self._check_open()
        return done.result(timeout=0)

    def run(self, workload: Workload, config: EngineConfig | None = None) -> Run:
        """Starts a workload on a fresh trace, warmed up and idle; returns at once."""
        trace = self.begin(config or self.config)
        return Run(workload, trace, self.submit_many, self.cancel)

    def close(self) -> None:
        """Ends all requests as cancelled and the thread; the trace stays."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._stop_gauge.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._gauge.join()
        self.alive = False

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Submitting, on the caller's thread.

    def prepare(self, submissions: Sequence[Submission]) -> list[Prepared]:
        """Checks and tokenizes; nothing is queued yet. Raises InvalidInput."""
        self._check_open()
        return [self._prepare(submission) for submission in submissions]

    def _check_open(self) -> None:
        if not self.alive or self._closing:
            raise InvalidInput(f"{self.error or 'the engine is closed'}; load a model first")

    def enqueue(self, prepared: Sequence[Prepared], more: bool = False) -> None:
        """Queues them. Where the engine was closed or began another trace meanwhile, they end as cancelled."""
        for p in prepared:
            p.router.trace.append(p.record)

        def turn_away(these: Sequence[Prepared]) -> None:
            for p in these:
                for branch in p.request.branches:
                    p.router.trace.append(
                        Ended(p.record.time, p.request.id, FinishReason.CANCELLED, branch=branch.index)
                    )

        def add() -> None:
            self.scheduler.more = more
            for p in prepared:
                if p.router is self.router:
                    self.scheduler.add(p.request)
            turn_away([p for p in prepared if p.router is not self.router])

        if not self._post(add):
            turn_away(prepared)

    def _prepare(self, submission: Submission) -> Prepared:
        router = self.router
        now = (submission.time if submission.time is not None else time.perf_counter()) - self._origin
        params = submission.params
        prompt = self._encode(submission.prompt)
        length = len(prompt.ids)
        limit = self._limit(length, params)
        if params.n > 1 and not self.config.paged:
            raise InvalidInput(
                f"n={params.n}: mode {self.config.mode!r} has no blocks that samples could share; "
                f"use one of {', '.join(PAGED_MODES)}, or n=1"
            )
        request = Request(next(self._ids), length, params, limit, self._seed(params), now)
        for index in range(params.n):
            output = Output(self._detokenizers(), params, self.model.eos, limit)
            request.branches.append(Branch(request, list(prompt.ids), output, index))
        ids = freeze(np.array(prompt.ids, np.int32))
        record = Submitted(now, request.id, prompt.text, ids, params, prompt.messages, submission.label)
        return Prepared(request, record, router)

    def _seed(self, params: SamplingParams) -> int:
        """A request without a seed gets one from the engine's and its number in the trace, so that a run repeats."""
        if params.seed is not None:
            return params.seed
        self._unseeded += 1
        return (self.config.seed << 32) + self._unseeded

    def _limit(self, length: int, params: SamplingParams) -> int:
        """The most tokens the request may generate: what it asked for, within the model's context."""
        limit = min(params.max_tokens, self.card.context - length) if self.card.context else params.max_tokens
        pool = self.scheduler.pool
        if self.config.mode == "recompute":  # it keeps no K and V
            return limit
        if blocks_for(length + limit - 1, pool.block_size) > pool.total:
            raise InvalidInput(
                f"prompt of {length:,} tokens with max_tokens={params.max_tokens:,}: the whole KV pool holds "
                f"{pool.total * pool.block_size:,} tokens; lower max_tokens, shorten the prompt or "
                "give the pool more memory"
            )
        return limit

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
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        self.model = spec if isinstance(spec, LoadedModel) else load(spec, progress, cancelled)
        self.card = self.model.card
        self._detokenizers = DetokenizerFactory(self.model.tokenizer)
        self._encode = PromptEncoder(self.model.tokenizer, self.card)
        self._build(config)
        self._open_trace()

    def _post(self, do: Callable[[], None]) -> bool:
        """Hands `do` to the engine's thread; False when that is closing and will not do it."""
        with self._wake:
            if self._closing:
                return False
            self._inbox.append(do)
            self._wake.notify()
            return True

    def _loop(self) -> None:
        try:
            self._work()
        except Exception as error:  # a defect of ours: nobody may wait for an engine that is gone
            self.alive, self.error = False, f"the engine stopped: {type(error).__name__}: {error}"
            now = time.perf_counter() - self._origin
            self.trace.append(Notice(now, "error", self.error))
            for request in self.scheduler.requests.values():
                for branch in request.branches:
                    if not branch.finished:
                        self.trace.append(Ended(now, request.id, FinishReason.ERROR, "", self.error, branch.index))
            self.trace.complete = True
            raise

    def _work(self) -> None:
        stepped = True
        while True:
            with self._wake:
                if not stepped or self.scheduler.idle:
                    patience = self.scheduler.patience(time.perf_counter() - self._origin)
                    self._wake.wait_for(lambda: self._inbox or self._closing, patience)
                inbox, self._inbox = self._inbox, deque()
                closing = self._closing
            for do in inbox:
                do()
            if closing:
                for request in list(self.scheduler.requests.values()):
                    self.scheduler.finish(request, FinishReason.CANCELLED)
                while self.in_flight:
                    self._commit(self.in_flight.popleft())
                self._record_ended()
                self.trace.complete = True
                return
            stepped = self.step()

    def step(self) -> bool:
        """Plans and launches one step, and commits one when more than `depth` are in flight or none was planned.

        False when there was neither: requests wait for others, or for time to pass.
        """
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
                self._fail(error)
                self.scheduler.abandon(plan, f"the step failed: {error}")
            else:
                launched.seconds["plan"] = planned - begun
                launched.step, launched.started = number, begun
                self.in_flight.append(launched)
        commits = bool(self.in_flight) and (plan is None or len(self.in_flight) > self.depth)
        if commits:
            self._commit(self.in_flight.popleft())
        elif plan is None and self.scheduler.has_changes:
            now = time.perf_counter() - self._origin
            self.trace.append(step_record(next(self._steps), now, now, None, [], self.scheduler))
        self._record_ended()
        return commits or plan is not None

    def _commit(self, launched: Launched) -> None:
        try:
            results = launched.read()
        except Exception as error:
            self._fail(error)
            self.scheduler.abandon(launched.plan, f"the step failed: {error}")
            return
        begun = time.perf_counter()
        committed = self.scheduler.commit(launched.plan, emissions(launched.plan, results))
        ended = time.perf_counter()
        launched.seconds["commit"] = ended - begun
        record = step_record(
            launched.step, launched.started - self._origin, ended - self._origin, launched, committed, self.scheduler,
        )  # fmt: skip
        self.trace.append(record)

    def _fail(self, error: Exception) -> None:
        detail = "".join(traceback.format_exception_only(error)).strip()
        self.trace.append(Notice(time.perf_counter() - self._origin, "error", f"a step failed: {detail}"))

    def _record_ended(self) -> None:
        now = time.perf_counter() - self._origin
        for branch in self.scheduler.take_ended():
            assert branch.reason is not None
            cut_short = branch.reason in (FinishReason.CANCELLED, FinishReason.ERROR)
            tail = branch.withheld_text + branch.output.flush() if cut_short else ""
            self.trace.append(Ended(now, branch.request.id, branch.reason, tail, branch.error, branch.index))

    def _build(self, config: EngineConfig) -> None:
        """A fresh cache, pool and scheduler, warmed up."""
        self.config = config
        self.depth = config.depth if config.depth is not None else int(self.model.device.type == "cuda")
        self.runner: Any = None  # the old cache is given back before the new one is made
        if self._threads is None:
            self._threads = self._fastest_threads() if self.model.device.type == "cpu" else torch.get_num_threads()
        blocks = self._pool_blocks(config)
        self.runner = (PagedRunner if config.paged else PaddedRunner)(self.model, config, blocks)
        rehearsal = Rehearsal(self.runner, config, blocks, self.card.context, self._detokenizers)
        rehearsal.play(2, 2)  # so that first-use costs are not in anybody's time to first token
        self.scheduler = Scheduler(config, BlockPool(blocks, config.block_size))
        self.in_flight: deque[Launched] = deque()

    def _fastest_threads(self) -> int:
        """Measured once, and the same for every mode."""
        config, blocks = EngineConfig(max_running=ROWS, block_size=16), 2 * ROWS
        runner = PagedRunner(self.model, config, blocks)
        return Rehearsal(runner, config, blocks, self.card.context, self._detokenizers).fastest_threads()

    def _open_trace(self) -> None:
        self._steps, self._unseeded = count(), 0
        self._origin = time.perf_counter()
        on_gpu = self.model.device.type == "cuda"
        gpu = torch.cuda.get_device_properties(self.model.device) if on_gpu else None
        header = Header(
            model=self.card,
            config=self.config,
            machine=machine.describe(self._threads or 1, gpu.name if gpu else "", gpu.total_memory if gpu else 0),
            versions=machine.versions(),
            created=time.time(),
            blocks=self.scheduler.pool.total,
            depth=self.depth,
        )
        self.trace = Trace([header])
        self.router = StreamRouter(self.trace)

    def _pool_blocks(self, config: EngineConfig) -> int:
        """Blocks of the pool: what `kv_memory` holds; else what the running requests could ever fill, within a quarter
        of the free memory (85 % on a GPU)."""
        block_bytes = self.card.kv_token_bytes * config.block_size
        if config.kv_memory is not None:
            blocks = config.kv_memory // block_bytes
            if blocks < 1:
                raise InvalidInput(
                    f"kv_memory={config.kv_memory:,}: one block of this model takes {block_bytes:,} bytes"
                )
            return int(blocks)
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
            free = int(torch.cuda.mem_get_info(self.model.device)[0] * 0.85)
        else:
            free = machine.memory()[1] // 4
        wanted = config.slots * blocks_for(self.card.context or 4096, config.block_size)
        blocks = min(wanted, free // block_bytes)
        if blocks < 1:
            raise InvalidInput(
                f"no memory is left for a KV cache: a block takes {block_bytes:,} bytes, {free:,} are free"
            )
        return int(blocks)

    def _watch(self) -> None:
        device = self.model.device
        gauge = machine.Gauge((device.index or 0) if device.type == "cuda" else None)
        while True:
            if self._stop_gauge.wait(TELEMETRY_INTERVAL):
                return
            self.trace.append(gauge.read(time.perf_counter() - self._origin))


def emissions(plan: StepPlan, results: Results) -> list[Emission]:
    """What the sampling rows of a step drew; alternatives only for those that asked, and as many as they asked for."""
    asked = [row.branch.request.params.logprobs for row in plan.rows if row.samples]
    return [
        Emission(
            token,
            logprob,
            tuple(zip(results.alternatives[i][:k], results.alternative_logprobs[i][:k])) if k else (),
        )
        for i, (token, logprob, k) in enumerate(zip(results.tokens, results.logprobs, asked, strict=True))
    ]
