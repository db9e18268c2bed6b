"""Generated lanes: one workload as each batching mode would run it, with every number invented. No model ran.

They show a timeline what it must draw: rows held until the longest ends, padding, waits behind others' prompts, work
done again, rows past a stop.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import numpy as np

from app.bench.synthetic import header
from engine import SamplingParams
from engine.trace import Ended, FinishReason, Kind, Record, Submitted
from engine.trace.step_builder import Given, built_step

MODES = ("recompute", "static", "continuous", "chunked")
STEP, TOKEN, PROMPT_TOKEN = 0.012, 0.0004, 0.00015  # seconds: of each step, of each decoding row, of each prompt token


@dataclass(slots=True)
class _Task:
    request: int
    prompt: int
    output: int
    slot: int = -1
    computed: int = 0
    emitted: int = 0

    @property
    def over(self) -> bool:
        return self.emitted >= self.output


@dataclass(slots=True)
class _Row:
    task: _Task
    kind: Kind
    count: int
    padding: int = 0
    wasted: int = 0


def lane_trace(
    mode: str,
    *,
    slots: int = 12,
    requests: int = 28,
    seed: int = 0,
    prompt: tuple[int, int] = (40, 600),
    output: tuple[int, int] = (20, 220),
    budget: int = 256,
    lag: int = 0,
) -> list[Record]:
    """The records of `requests` that all come in at once. `lag`: rows computed past a stop, 0 or 1 a request.

    Raises ValueError for a mode it does not know.
    """
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}: must be one of {', '.join(MODES)}")
    rng = random.Random(seed)
    tasks = [_Task(i, rng.randint(*prompt), rng.randint(*output)) for i in range(1, requests + 1)]
    return _Lane(mode, 1 if mode == "recompute" else slots, budget, lag, tasks).run()


class _Lane:
    def __init__(self, mode: str, slots: int, budget: int, lag: int, tasks: list[_Task]) -> None:
        self.mode, self.budget, self.lag = mode, budget, lag
        self.waiting = deque(tasks)
        self.slots: list[_Task | None] = [None] * slots
        self.time, self.number, self.prefilled = 0.0, 0, False
        self.past: list[_Row] = []
        self.records: list[Record] = [header(slots, 4096)]
        for task in tasks:
            ids = np.arange(task.prompt, dtype=np.int32)
            params = SamplingParams(max_tokens=task.output, temperature=0.0)
            self.records.append(Submitted(0.0, task.request, f"prompt {task.request}", ids, params))

    def run(self) -> list[Record]:
        while self.waiting or any(self.slots):
            self.commit(self.static() if self.mode == "static" else self.plan())
        return self.records

    def running(self) -> list[_Task]:
        return [task for task in self.slots if task is not None]

    def join(self) -> list[_Task]:
        joined = []
        for slot, task in enumerate(self.slots):
            if task is None and self.waiting:
                joined.append(self.waiting.popleft())
                joined[-1].slot, self.slots[slot] = slot, joined[-1]
        return joined

    def static(self) -> list[_Row]:
        """All join together and leave together; prompts are padded to the longest."""
        if not self.running():
            joined = self.join()
            longest = max(task.prompt for task in joined)
            return [_Row(task, Kind.PREFILL, task.prompt, longest - task.prompt) for task in joined]
        return [
            _Row(task, Kind.HELD, 1, wasted=1) if task.over else _Row(task, Kind.DECODE, 1) for task in self.running()
        ]

    def plan(self) -> list[_Row]:
        self.join()
        prompts, left = [], self.budget
        for task in self.running():
            rest = task.prompt - task.computed
            if rest > 0 and left > 0:
                count = rest if self.mode != "chunked" else min(rest, left)
                prompts.append(_Row(task, Kind.PREFILL, count))
                left -= count
        decodes = [_Row(task, Kind.DECODE, 1) for task in self.running() if task.computed >= task.prompt]
        if self.mode == "recompute":
            for row in decodes:
                row.count, row.wasted = row.task.prompt + row.task.emitted, row.task.prompt + row.task.emitted - 1
        past, self.past = self.past, []
        if self.mode == "chunked":
            return prompts + decodes
        if prompts and (not self.prefilled or not decodes):
            self.prefilled, self.past = True, past
            return prompts
        self.prefilled = False
        return decodes + [row for row in past if self.slots[row.task.slot] in (None, row.task)]

    def commit(self, rows: list[_Row]) -> None:
        started = self.time
        tokens = sum(row.count + row.padding for row in rows if row.kind is Kind.PREFILL or row.count > 1)
        self.time += STEP + TOKEN * len(rows) + PROMPT_TOKEN * tokens
        emitting: list[int] = []
        ended: list[_Task] = []
        for i, row in enumerate(rows):
            task = row.task
            if row.kind is Kind.PREFILL:
                task.computed += row.count
            if row.kind is Kind.HELD or task.over or task.computed < task.prompt:
                continue
            emitting.append(i)
            task.emitted += 1
            if task.over:
                ended.append(task)
        self.record(started, rows, emitting)
        for task in ended:
            self.records.append(Ended(self.time, task.request, FinishReason.LENGTH))
            if self.mode != "static":
                self.slots[task.slot] = None
                self.past += [_Row(task, Kind.DECODE, 1, wasted=1)] * self.lag
        if self.mode == "static" and all(task.over for task in self.running()):
            self.slots = [None] * len(self.slots)

    def record(self, started: float, rows: list[_Row], emitting: list[int]) -> None:
        self.number += 1
        columns: Given = {name: [getattr(row, name) for row in rows] for name in ("count", "kind", "wasted", "padding")}
        columns["slot"] = [row.task.slot for row in rows]
        columns["first"] = [max(0, row.task.computed + row.task.emitted - row.count) for row in rows]
        columns |= {"token_row": emitting, "token": [7] * len(emitting)}
        requests, running = [row.task.request for row in rows], sum(not task.over for task in self.running())
        columns |= {"running": running, "waiting": len(self.waiting), "free_blocks": 4096}
        self.records.append(built_step(self.number, started, self.time, requests, **columns))
