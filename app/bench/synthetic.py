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
from typing import Any

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
        sentence = rng.choice(SENTENCES).format(
            a=a, b=b, name=name, mood=rng.choice(MOODS), place=rng.choice(PLACES)
        )  # fmt: skip
        pieces = sentence.split(" ")
        if words and rng.random() < 0.15:
            words.append("\n\n")
            words.append(pieces.pop(0))
        words += [" " + piece for piece in pieces]
    words[0] = words[0].lstrip()
    return f"Tell me a story about a {a} and a {b}.", words[:tokens]


def header(streams: int, blocks: int, block_size: int = BLOCK) -> Header:
    """The header of a generated trace: a made-up model and machine that name themselves so."""
    model = ModelCard(
        name="synthetic stories", source="synthetic", architecture="none (generated trace)", parameters=5_200_000,
        layers=6, heads=8, kv_heads=4, head_dim=32, hidden=256, vocabulary=4096, context=2048, dtype="float32",
        device="cpu", quantization="none", weight_bytes=20_800_000, kv_token_bytes=6 * 4 * 32 * 2 * 4, chat=True,
    )  # fmt: skip
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
    model = replace(
        plain.model, parameters=8_000_000_000, layers=32, heads=32, kv_heads=8, head_dim=128, hidden=4096,
        context=131_072, dtype="bfloat16", device="cuda:0", weight_bytes=16_060_522_496,
        kv_token_bytes=2 * 32 * 8 * 128 * 2, load_seconds=9.2,
    )  # fmt: skip
    machine = replace(plain.machine, gpu="generated GPU", gpu_memory=GPU_MEMORY)
    pool, graphs = blocks * block_size * model.kv_token_bytes, 0 if off else GRAPH_BYTES
    activations, runtime, other = 1_240 << 20, 1_530 << 20, 610 << 20
    free = GPU_MEMORY - model.weight_bytes - pool - graphs - activations - runtime - other
    bill = MemoryBreakdown(GPU_MEMORY, model.weight_bytes, pool, activations, runtime, other, free, graphs)
    return replace(
        plain, model=model, machine=machine, bill=bill, depth=1, graphs=() if off else GRAPHS, graphs_off=off
    )  # fmt: skip


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
    return _Model(streams, tokens_per_second, seed, requests, prefill_chunk, faults, blocks, block_size).run(seconds)


class _Model:
    def __init__(
        self, streams: int, rate: float, seed: int, requests: int | None, prefill_chunk: int, faults: float,
        blocks: int, size: int,
    ) -> None:  # fmt: skip
        self.rng = random.Random(seed)
        self.rate, self.chunk, self.faults = rate, prefill_chunk, faults
        self.left = math.inf if requests is None else requests
        self.backlog = max(4, streams // 8)
        self.keeps, self.size = blocks > 0, size
        blocks = blocks or 64 + streams * 10
        self.cached: deque[int] = deque()
        self.blocks = blocks
        self.free_blocks, self.free_slots = list(range(blocks))[::-1], list(range(streams))[::-1]
        self.waiting: deque[_Row] = deque()
        self.running: list[_Row] = []
        self.records: list[Record] = [header(streams, blocks, size)]
        self.time, self.steps, self.tokens, self.requests = 0.0, 0, 0, 0
        self.events: list[tuple[BlockEvent, int, int, int]] = []  # event, block, request, place in its table
        self.preempted: list[int] = []
        for _ in range(streams):
            self.submit()

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
        ids = np.arange(prompt, dtype=np.int32) % 4096
        ids.flags.writeable = False
        self.records.append(
            Submitted(self.time, self.requests, text, ids, params, ({"role": "user", "content": text},))
        )  # fmt: skip
        self.waiting.append(_Row(self.requests, prompt, words, reason))

    def run(self, seconds: float) -> list[Record]:
        told = 0.0
        while self.time < seconds:
            while len(self.waiting) < self.backlog and self.left > 0:
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
        first = [row.computed for row, _ in rows]
        emitting = []
        for index, (row, count) in enumerate(rows):
            row.computed += count
            if row.computed == row.known:
                emitting.append(index)
        text, text_end, tokens, ending = "", [], [], []
        emits = set(emitting)
        for index, (row, _) in enumerate(rows):
            if index in emits:
                word = row.words[row.emitted]
                row.emitted += 1
                text += word
                tokens.append(zlib.crc32(word.encode()) % 4096)
                text_end.append(len(text))
                if row.emitted == len(row.words):
                    ending.append(row)
        self.tokens += len(emitting)
        self.time = max(started + 2e-4, self.tokens / self.rate + 0.3 * math.sin(self.tokens / self.rate / 2) ** 2)
        slots = [row.slot for row, _ in rows]
        for row in ending:
            self.release(row)
            self.running.remove(row)
        self.append_step(started, rows, slots, first, kind, emitting, tokens, text, text_end)
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

    def append_step(
        self, started: float, rows: list[tuple[_Row, int]], slots: list[int], first: list[int], kind: Kind,
        emitting: list[int], tokens: list[int], text: str, text_end: list[int],
    ) -> None:  # fmt: skip
        n, span = len(rows), self.time - started
        columns = {
            "request": [row.request for row, _ in rows], "branch": [0] * n, "slot": slots, "first": first,
            "count": [count for _, count in rows], "kind": [kind] * n, "wasted": [0] * n, "token_row": emitting,
            "token": tokens, "text_end": text_end, "preempted": self.preempted,
            "block_event": [event for event, *_ in self.events], "block": [block for _, block, *_ in self.events],
            "block_request": [request for _, _, request, _ in self.events], "block_branch": [0] * len(self.events),
            "block_place": [place for *_, place in self.events],
        }  # fmt: skip
        arrays: dict[str, Any] = {name: np.array(values, np.int32) for name, values in columns.items()}
        logprob = -np.abs(np.random.default_rng(self.steps).normal(0, 0.8, len(tokens))).astype(np.float32)
        for array in (*arrays.values(), logprob):
            array.flags.writeable = False
        used, held = sum(row.computed for row in self.running), self.size * sum(len(row.blocks) for row in self.running)
        seconds = {"plan": 0.02, "prepare": 0.04, "forward": 0.85, "sample": 0.05, "record": 0.04}
        self.records.append(
            Step(
                step=self.steps, started=started, ended=self.time, text=text, logprob=logprob,
                running=len(self.running), waiting=len(self.waiting), free_blocks=len(self.free_blocks),
                cached_blocks=len(self.cached), kv_used=used, kv_reserved=min(held - used, 8 * len(self.running)),
                kv_internal=max(0, held - used - 8 * len(self.running)),
                seconds={name: share * span for name, share in seconds.items()}, **arrays,
            )
        )  # fmt: skip
