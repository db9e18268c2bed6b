"""Generated traces: no model ran. They replay into the window in benchmarks, in tests and while it is being built.

The engine's own scheduler plans every step; the tokens are the words of stories that are drawn from a seed, and what a
step takes is told beforehand. Every time and size in such a trace is invented, and its header says so.
"""

from __future__ import annotations

import math
import random
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import resources
from engine import EngineConfig, SamplingParams
from engine.bench.trace.step_builder import Given
from engine.core.tracing.step_record import NotedStep, ended_record
from engine.decoding.output import Output
from engine.scheduler import BlockPool, Branch, Emission, Request, Scheduler, StepPlan
from engine.trace import (
    FinishReason,
    Header,
    Machine,
    MemoryBreakdown,
    ModelCard,
    Record,
    Roof,
    StepStarted,
    Submitted,
    Telemetry,
)
from engine.trace.records import freeze

if TYPE_CHECKING:
    from engine.runner.launched_step import LaunchedStep

BLOCK = 16
SECONDS = {"plan": 0.02, "prepare": 0.04, "forward": 0.85, "sample": 0.05, "record": 0.04}
ERROR = "the logits of this row were not finite (NaN); the other rows went on"


@cache
def _stories() -> tuple[list[str], list[str]]:
    """The prompts of the stories that ship, and all their words in order."""
    text = resources.path("texts/stories.txt").read_text(encoding="utf-8")
    pairs = re.findall(r"<\|user\|>(.*?)</s><\|assistant\|>(.*?)</s>", text, re.DOTALL)
    return [prompt for prompt, _ in pairs], [f" {word}" for _, told in pairs for word in told.split()]


def story(rng: random.Random, tokens: int) -> tuple[str, list[str]]:
    """A prompt, and so many words of a story, whose join is its text."""
    prompts, words = _stories()
    begin = rng.randrange(len(words))
    first, *others = (words[begin:] + words)[:tokens]
    return rng.choice(prompts), [first.lstrip(), *others]


def header(streams: int, blocks: int, block_size: int = BLOCK, depth: int = 0, **config: Any) -> Header:
    """The header of a generated trace: a made-up model and machine that name themselves so. `config` as `EngineConfig`
    has it."""
    shape: Given = {"layers": 6, "heads": 8, "kv_heads": 4, "head_dim": 32, "hidden": 256, "vocabulary": 4096}
    sizes: Given = {"parameters": 5_200_000, "weight_bytes": 20_800_000, "kv_token_bytes": 6 * 4 * 32 * 2 * 4}
    held: Given = {"context": 2048, "dtype": "float32", "device": "cpu", "quantization": "none", "chat": True}
    model = ModelCard("synthetic stories", "synthetic", "none (generated trace)", **shape, **sizes, **held)
    config = {"token_budget": max(2048, streams), "block_size": block_size, "max_running": streams} | config
    roof = Roof((1 << 20, 1 << 24, 1 << 28), (40e9, 20e9, 10e9), 100e9)
    pool = blocks * block_size * model.kv_token_bytes
    rest = (8 << 30) - model.weight_bytes - pool
    shares = rest // 32, rest // 16, rest // 4  # activations, runtime, others
    bill = MemoryBreakdown(8 << 30, model.weight_bytes, pool, *shares, rest - sum(shares))
    machine = Machine(cpu="generated, not measured", cores=2, memory=8 << 30, threads=1)
    settings, versions = EngineConfig(**config), {"batchscope": "synthetic"}
    return Header(model, settings, machine, versions, created=0.0, blocks=blocks, depth=depth, roof=roof, bill=bill)


@dataclass(slots=True)
class _Script:
    """What a request says, in place of a model and its tokenizer: a word a token, after the last one its end."""

    words: list[str]
    reason: FinishReason
    said: int = 0
    fault: str = ""

    def push(self, token: int) -> tuple[str, FinishReason | None]:
        self.said += 1
        return self.words[self.said - 1], self.reason if self.said == len(self.words) else None

    def flush(self) -> str:
        return ""


class MadeUpRun:
    """Requests on a scheduler as `header.config` has it. `cost`: seconds of a step that gives so many tokens; the next
    one begins when it ends, at whatever depth."""

    def __init__(self, header: Header, cost: Callable[[StepPlan, int], float]) -> None:
        self.records: list[Record] = [header]
        self.scheduler = Scheduler(header.config, BlockPool(header.blocks, header.config.block_size))
        self.time, self.steps, self.requests = 0.0, 0, 0
        self._cost, self._depth = cost, header.depth
        self._in_flight: deque[LaunchedStep] = deque()

    def submit(self, prompt: str, tokens: int, words: list[str], reason: FinishReason, params: SamplingParams) -> None:
        """A prompt of so many tokens, unlike those before it, that is answered by these words."""
        self.requests += 1
        ids = freeze((np.arange(tokens, dtype=np.int32) + 997 * self.requests) % 4096)
        limit = params.max_tokens + self._depth  # rows that are launched ahead know of no end
        request = Request(self.requests, tokens, params, limit, 0, self.time)
        request.branches.append(Branch(request, ids.tolist(), cast(Output, _Script(words, reason))))
        messages = ({"role": "user", "content": prompt},)
        self.records.append(Submitted(self.time, request.id, prompt, ids, params, messages))
        self.scheduler.add(request)

    def step(self) -> bool:
        """Launches a step, and commits one where more than the depth are under way; False when all is over."""
        plan = self.scheduler.plan(self.time)
        if plan is not None:
            self.steps += 1
            tokens = sum(row.count for row in plan.rows)
            self.records.append(StepStarted(self.time, self.steps, len(plan.rows), tokens))
            nothing = {"seconds": {}, "attention": 0.0, "graph": 0, "device": 0.0, "swapping": 0.0}
            launched = SimpleNamespace(
                step=self.steps, plan=plan, times=None, kernels=None, experts=None, beside=0, **nothing
            )
            self._in_flight.append(cast("LaunchedStep", launched))
        if self._in_flight and (plan is None or len(self._in_flight) > self._depth):
            self._commit(self._in_flight.popleft())
        return not self.scheduler.idle

    def _commit(self, launched: LaunchedStep) -> None:
        started, rng = self.time, np.random.default_rng(launched.step)
        count = sum(row.samples for row in launched.plan.rows)
        drawn = zip(rng.integers(0, 4096, count).tolist(), (-np.abs(rng.normal(0, 0.8, count))).tolist())
        committed = self.scheduler.commit(launched.plan, [Emission(*token) for token in drawn])
        self.time += self._cost(launched.plan, sum(len(outcome.emitted) for outcome in committed))
        record = NotedStep(launched.step, started, self.time, launched, committed, self.scheduler, str).record()
        record.seconds.update({name: share * (self.time - started) for name, share in SECONDS.items()})
        self.records.append(record)
        for branch in self.scheduler.take_ended():
            error = ERROR if branch.reason is FinishReason.ERROR else ""
            self.records.append(replace(ended_record(branch, self.time), error=error))


def synthetic_trace(
    streams: int = 256,
    tokens_per_second: float = 30_000,
    seconds: float = 10.0,
    seed: int = 0,
    requests: float = math.inf,
    faults: float = 0.01,
    blocks: int = 0,
    block_size: int = BLOCK,
) -> list[Record]:
    """The records of a made-up run: `streams` requests decode at a time, `tokens_per_second` tokens come out in all.

    `requests` bounds how many come in, else as many as keep the slots full; the trace ends when all have ended or
    after `seconds`. `faults` is the share of requests that end in an error, and again in a cancellation. The pool has
    `blocks` (0: a few more than the streams need). Where there are as many as to spare, those of finished requests
    stay cached, and the oldest give way. The same arguments give the same records.
    """
    rng, given = random.Random(seed), 0

    def cost(plan: StepPlan, tokens: int) -> float:
        nonlocal given
        given += tokens
        even = given / tokens_per_second
        return max(2e-4, even + 0.3 * math.sin(even / 2) ** 2 - run.time)

    run = MadeUpRun(header(streams, blocks or 64 + streams * 10, block_size, prefix_caching=blocks > 0), cost)
    backlog, told, busy = streams + max(4, streams // 8), 0.0, True
    while busy and run.time < seconds:
        while len(run.scheduler.requests) < backlog and run.requests < requests:
            _submit_story(run, rng, faults)
        busy = run.step()
        if run.time >= told:
            told = run.time + 0.5
            cpu = 165 + 20 * math.sin(run.time / 3) + rng.uniform(-8, 8)
            memory = int((1.05 + 0.01 * min(run.time, 20)) * 2**30)
            run.records.append(Telemetry(run.time, cpu, memory, 8 << 30))
    return run.records


def _submit_story(run: MadeUpRun, rng: random.Random, faults: float) -> None:
    draw, limit = rng.random(), 200
    length = limit if draw < 0.15 else rng.randint(60, limit - 1)
    reason = FinishReason.LENGTH if length == limit else FinishReason.STOP
    if draw > 1 - faults:
        reason, length = FinishReason.ERROR, rng.randint(1, 40)
    elif draw > 1 - 2 * faults:
        reason, length = FinishReason.CANCELLED, rng.randint(1, 60)
    prompt = rng.randint(300, 900) if rng.random() < 0.08 else rng.randint(18, 40)
    params = SamplingParams(max_tokens=limit, temperature=0.8, top_p=0.95)
    asked, words = story(rng, length)
    run.submit(asked, prompt, words, reason, params)
