"""Generated traces: no model ran. They replay into the window in benchmarks, in tests and while it is being built.

A small model of continuous batching decides who joins, who decodes and who is preempted; the text is story-like and
drawn from a seed. Every number in such a trace is invented, and its header says so.
"""

from __future__ import annotations

import math
import random
import zlib
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from engine import EngineConfig, SamplingParams
from engine.trace import (
    BlockEvent,
    Ended,
    FinishReason,
    Header,
    Kind,
    Machine,
    MemoryBreakdown,
    ModelCard,
    Record,
    Roof,
    Step,
    StepStarted,
    Submitted,
    Telemetry,
)
from engine.trace.records import freeze
from engine.trace.step_builder import Given, built_step

BLOCK = 16
CREATURES = "fox whale dragon robot penguin wizard turtle mouse raven badger heron lamb beaver panther".split()
THINGS = "lantern violin kite piano boat map clock rose compass kettle ladder drum mirror wagon".split()
NAMES = "Mia Tom Lily Ben Anna Max Rosa Leo Ivy Sam Nora Finn".split()
MOODS = "gentle brave quiet curious clever sleepy merry lonely patient wise".split()
PLACES = ["the sea", "the old mill", "the quiet village", "the dark wood", "the harbor", "the green valley"]
SENTENCES = (
    "Once upon a time a {mood} {a} lived by {place}.",
    "{name} and the {a} went to {place} and looked for the {b}.",
    'The {a} said, "I have lost my {b}."',
    "They walked until the sun came up over {place}.",
    "Everyone laughed, and the {mood} {a} played the {b} until dark.",
    "It was a {mood} day near {place}.",
    '"Do not be sad," whispered {name}, "we will find the {b} together."',
    "The {b} was hidden behind a stone at {place}.",
    "After the rain the {a} carried the {b} home.",
    "Small steps can cross a mountain, said the {mood} {a}.",
)
SECONDS = {"plan": 0.02, "prepare": 0.04, "forward": 0.85, "sample": 0.05, "record": 0.04}
ERROR = "the logits of this row were not finite (NaN); the other rows went on"


@dataclass(slots=True)
class _Row:
    """A request of the model: what is computed, what is still to be said."""

    request: int
    prompt: int
    words: list[str]
    reason: FinishReason
    slot: int = -1
    computed: int = 0
    emitted: int = 0
    blocks: list[int] = field(default_factory=list)

    @property
    def known(self) -> int:
        return self.prompt + self.emitted


def story(rng: random.Random, tokens: int) -> tuple[str, list[str]]:
    """A prompt, and a story for it cut into `tokens` token-like pieces whose join is its text."""
    a, b, name = rng.choice(CREATURES), rng.choice(THINGS), rng.choice(NAMES)
    words: list[str] = []
    while len(words) < tokens:
        sentence, mood, place = (rng.choice(words) for words in (SENTENCES, MOODS, PLACES))
        pieces = sentence.format(a=a, b=b, name=name, mood=mood, place=place).split(" ")
        if words and rng.random() < 0.15:
            words.append("\n\n")
            words.append(pieces.pop(0))
        words += [" " + piece for piece in pieces]
    words[0] = words[0].lstrip()
    return f"Tell me a story about a {a} and a {b}.", words[:tokens]


def header(streams: int, blocks: int, block_size: int = BLOCK) -> Header:
    """The header of a generated trace: a made-up model and machine that name themselves so."""
    shape: Given = {"layers": 6, "heads": 8, "kv_heads": 4, "head_dim": 32, "hidden": 256, "vocabulary": 4096}
    sizes: Given = {"parameters": 5_200_000, "weight_bytes": 20_800_000, "kv_token_bytes": 6 * 4 * 32 * 2 * 4}
    held: Given = {"context": 2048, "dtype": "float32", "device": "cpu", "quantization": "none", "chat": True}
    model = ModelCard("synthetic stories", "synthetic", "none (generated trace)", **shape, **sizes, **held)
    config = EngineConfig(max_running=streams, token_budget=max(2048, streams), block_size=block_size)
    roof = Roof((1 << 20, 1 << 24, 1 << 28), (40e9, 20e9, 10e9), 100e9)
    pool = blocks * block_size * model.kv_token_bytes
    rest = (8 << 30) - model.weight_bytes - pool
    bill = MemoryBreakdown(
        8 << 30, model.weight_bytes, pool, rest // 32, rest // 16, rest // 4, rest - rest // 32 - rest // 16 - rest // 4
    )
    machine = Machine(cpu="generated, not measured", cores=2, memory=8 << 30, threads=1)
    return Header(
        model, config, machine, {"batchscope": "synthetic"}, created=0.0, blocks=blocks, depth=0, roof=roof, bill=bill
    )


GRAPHS = (1, 2, 4, *range(8, 257, 8))  # rows for which decode steps are captured
GPU_MEMORY, GRAPH_BYTES = 80 << 30, 420 << 20


def gpu_header(streams: int, blocks: int, block_size: int = BLOCK, off: str = "") -> Header:
    """As `header`, of a model with 8 B parameters on a made-up GPU; `off`: why nothing was captured there."""
    plain = header(streams, blocks, block_size)
    shape: Given = {"layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "hidden": 4096}
    sizes: Given = {"parameters": 8_000_000_000, "weight_bytes": 16_060_522_496, "kv_token_bytes": 2 * 32 * 8 * 128 * 2}
    held: Given = {"context": 131_072, "dtype": "bfloat16", "device": "cuda:0", "load_seconds": 9.2}
    model = replace(plain.model, **shape, **sizes, **held)
    machine = replace(plain.machine, gpu="generated GPU", gpu_memory=GPU_MEMORY)
    pool, graphs = blocks * block_size * model.kv_token_bytes, 0 if off else GRAPH_BYTES
    activations, runtime, other = 1_240 << 20, 1_530 << 20, 610 << 20
    free = GPU_MEMORY - model.weight_bytes - pool - graphs - activations - runtime - other
    bill = MemoryBreakdown(GPU_MEMORY, model.weight_bytes, pool, activations, runtime, other, free, graphs)
    plain = replace(plain, graphs=() if off else GRAPHS, graphs_off=off)
    return replace(plain, model=model, machine=machine, bill=bill, depth=1)


def on_gpu(records: list[Record], off: str = "") -> list[Record]:
    """A generated trace as if it had run on the GPU of `gpu_header`: decode steps replay the next larger graph."""
    first = records[0]
    assert isinstance(first, Header)
    told = gpu_header(first.config.max_running, first.blocks, first.config.block_size, off)
    return [told, *(_replayed(record, told.graphs) if isinstance(record, Step) else record for record in records[1:])]


def _replayed(step: Step, graphs: tuple[int, ...]) -> Step:
    decodes = bool(step.rows) and bool((step.kind == Kind.DECODE).all())
    graph = next((rows for rows in graphs if rows >= step.rows), 0) if decodes else 0
    return replace(step, graph=graph, device=0.9 * (step.ended - step.started))


def synthetic_trace(
    streams: int = 256,
    tokens_per_second: float = 30_000,
    seconds: float = 10.0,
    seed: int = 0,
    requests: int | None = None,
    prefill_chunk: int = 256,
    faults: float = 0.01,
    blocks: int = 0,
    block_size: int = BLOCK,
) -> list[Record]:
    """The records of a made-up run: `streams` requests decode at a time, `tokens_per_second` tokens come out in all.

    `requests` bounds how many come in (None: as many as keep the slots full); the trace ends when all have ended or
    after `seconds`. `faults` is the share of requests that end in an error, and again in a cancellation. The pool has
    `blocks` (0: a few more than the streams need). Where there are as many as to spare, those of finished requests
    stay cached, and the oldest give way. The same arguments give the same records.
    """
    model = _Model(streams, tokens_per_second, random.Random(seed), prefill_chunk, faults, blocks, block_size)
    model.left = math.inf if requests is None else requests
    return model.run(seconds)


@dataclass
class _Model:
    streams: int
    rate: float
    rng: random.Random
    chunk: int
    faults: float
    blocks: int
    size: int
    left: float = math.inf  # requests that may still come in
    time: float = 0.0
    steps: int = 0
    tokens: int = 0
    requests: int = 0

    def __post_init__(self) -> None:
        self.keeps = self.blocks > 0
        blocks = self.blocks or 64 + self.streams * 10
        self.cached: deque[int] = deque()
        self.free_blocks, self.free_slots = list(range(blocks))[::-1], list(range(self.streams))[::-1]
        self.waiting: deque[_Row] = deque()
        self.running: list[_Row] = []
        self.records: list[Record] = [header(self.streams, blocks, self.size)]
        self.events: list[tuple[BlockEvent, int, int, int]] = []  # event, block, request, place in its table
        self.preempted: list[int] = []

    def submit(self) -> None:
        if self.left <= 0:
            return
        self.left -= 1
        self.requests += 1
        rng, limit = self.rng, 200
        draw = rng.random()
        length = limit if draw < 0.15 else rng.randint(60, limit - 1)
        reason = FinishReason.LENGTH if length == limit else FinishReason.STOP
        if draw > 1 - self.faults:
            reason, length = FinishReason.ERROR, rng.randint(1, 40)
        elif draw > 1 - 2 * self.faults:
            reason, length = FinishReason.CANCELLED, rng.randint(1, 60)
        text, words = story(rng, length)
        prompt = rng.randint(300, 900) if rng.random() < 0.08 else rng.randint(18, 40)
        params = SamplingParams(max_tokens=limit, temperature=0.8, top_p=0.95)
        ids, messages = freeze(np.arange(prompt, dtype=np.int32) % 4096), ({"role": "user", "content": text},)
        self.records.append(Submitted(self.time, self.requests, text, ids, params, messages))
        self.waiting.append(_Row(self.requests, prompt, words, reason))

    def run(self, seconds: float) -> list[Record]:
        told, backlog = 0.0, max(4, self.streams // 8)
        for _ in range(self.streams):
            self.submit()
        while self.time < seconds:
            while len(self.waiting) < backlog and self.left > 0:
                self.submit()
            if not self.waiting and not self.running:
                break
            self.step()
            if self.time >= told:
                self.telemetry()
                told = self.time + 0.5
        return self.records

    def telemetry(self) -> None:
        cpu = 165 + 20 * math.sin(self.time / 3) + self.rng.uniform(-8, 8)
        memory = int((1.05 + 0.01 * min(self.time, 20)) * 2**30)
        self.records.append(Telemetry(self.time, cpu, memory, 8 << 30))

    def step(self) -> None:
        started, self.steps = self.time, self.steps + 1
        self.events, self.preempted = [], []
        chunks = self.prefill() if self.steps % 2 else []
        kind = Kind.PREFILL if chunks else Kind.DECODE
        rows = chunks or [(row, 1) for row in self.grown()]
        self.records.append(StepStarted(started, self.steps, len(rows), sum(count for _, count in rows)))
        given = {"first": [row.computed for row, _ in rows], "slot": [row.slot for row, _ in rows]}
        given |= {"kind": [kind] * len(rows), "token_row": []}
        texts, ending = [], []
        for index, (row, count) in enumerate(rows):
            row.computed += count
            if row.computed == row.known:
                texts.append(row.words[row.emitted])
                row.emitted += 1
                given["token_row"].append(index)
                if row.emitted == len(row.words):
                    ending.append(row)
        self.tokens += len(texts)
        self.time = max(started + 2e-4, self.tokens / self.rate + 0.3 * math.sin(self.tokens / self.rate / 2) ** 2)
        for row in ending:
            self.release(row)
            self.running.remove(row)
        self.append_step(started, rows, given, texts)
        for row in ending:
            error = ERROR if row.reason is FinishReason.ERROR else ""
            self.records.append(Ended(self.time, row.request, row.reason, error=error))

    def prefill(self) -> list[tuple[_Row, int]]:
        """Prompt chunks of one step: requests under way first, then those that can join."""
        budget = 4 * self.chunk
        chunks = []
        for row in self.running:
            if row.computed < row.known - 1 and budget:
                chunks.append((row, min(self.chunk, row.known - row.computed, budget)))
                budget -= chunks[-1][1]
        while self.waiting and self.free_slots and budget:
            row = self.waiting[0]
            need = row.known // self.size + 1
            if need + len(self.running) // 8 > len(self.free_blocks) + len(self.cached):
                break
            self.waiting.popleft()
            row.slot = self.free_slots.pop()
            self.running.append(row)
            self.take(row, need)
            chunks.append((row, min(self.chunk, row.known, budget)))
            budget -= chunks[-1][1]
        return chunks

    def grown(self) -> list[_Row]:
        """The rows that decode now, each with room for one more token; the youngest make room when there is none."""
        rows = []
        for row in list(self.running):
            if row.slot < 0 or row.computed < row.known - 1:
                continue
            while row.slot >= 0 and row.known > len(row.blocks) * self.size:
                if self.free_blocks or self.cached:
                    self.take(row, 1)
                    continue
                victim = self.running[-1]
                self.release(victim)
                self.running.pop()
                victim.computed = 0
                self.waiting.appendleft(victim)
                self.preempted.append(victim.request)
            if row.slot >= 0:
                rows.append(row)
        return [row for row in rows if row.slot >= 0]

    def take(self, row: _Row, count: int) -> None:
        for _ in range(count):
            block = self.free_blocks.pop() if self.free_blocks else self.cached.popleft()
            self.events.append((BlockEvent.TAKEN, block, row.request, len(row.blocks)))
            row.blocks.append(block)

    def release(self, row: _Row) -> None:
        full = row.computed // self.size if self.keeps else 0
        for place in reversed(range(len(row.blocks))):
            block, kept = row.blocks[place], place < full
            (self.cached if kept else self.free_blocks).append(block)
            self.events.append((BlockEvent.KEPT if kept else BlockEvent.FREED, block, row.request, place))
        self.free_slots.append(row.slot)
        row.blocks, row.slot = [], -1

    def append_step(self, started: float, rows: list[tuple[_Row, int]], given: Given, texts: list[str]) -> None:
        span = self.time - started
        used, held = sum(row.computed for row in self.running), self.size * sum(len(row.blocks) for row in self.running)
        reserved, left = min(held - used, 8 * len(self.running)), {"waiting": len(self.waiting)}
        left |= {"free_blocks": len(self.free_blocks), "cached_blocks": len(self.cached), "running": len(self.running)}
        pool = {"kv_used": used, "kv_reserved": reserved, "kv_internal": max(0, held - used - reserved)}
        given |= {"count": [count for _, count in rows], "preempted": self.preempted}
        given |= {"token": [zlib.crc32(word.encode()) % 4096 for word in texts]}
        seconds = {name: share * span for name, share in SECONDS.items()}
        logprob = -np.abs(np.random.default_rng(self.steps).normal(0, 0.8, len(texts)))
        requests = [row.request for row, _ in rows]
        told = given | left | pool | {"seconds": seconds, "logprob": logprob}
        self.records.append(built_step(self.steps, started, self.time, requests, texts, self.events, **told))
