"""The records of a made-up hour: no model ran, every number is drawn from a seed, and its header says so."""

from collections.abc import Iterator
from itertools import count

import numpy as np

from engine.bench.trace.step_builder import Given, built_step
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.trace.records import (
    BlockEvent,
    Ended,
    FinishReason,
    Header,
    Kind,
    Machine,
    ModelCard,
    Record,
    Step,
    StepStarted,
    Submitted,
    Telemetry,
    freeze,
)

BLOCK = 16
PERIOD = 0.010  # seconds a step: 100 a second
PROMPTS = (32, 512)  # tokens, drawn evenly
ANSWERS = (32, 480)
PHASES = ("plan", "prepare", "forward", "sample", "wait", "commit", "record")
Events = list[tuple[int, int, int, int]]  # event, block, its owner, its place in the owner's table
WORDS = " the, a and. to was He she it they fox little said with day big up happy very play ing ed er s".split(" ")


def header(rows: int) -> Header:
    """Says that nothing here was measured."""
    shape = 5_200_000, 6, 8, 4, 32, 256, 4096, 2048
    held = "float32", "cpu", "none", 20_800_000, 6 * 4 * 32 * 2 * 4, True
    model = ModelCard("made up", "made up", "none (generated trace)", *shape, *held)
    machine = Machine("generated, not measured", 2, 8 << 30, 1)
    return Header(model, EngineConfig(max_running=rows), machine, {}, 0.0, rows * 64, 0)


def made_up_hour(steps: int = 360_000, rows: int = 64, seed: int = 0) -> Iterator[Record]:
    """A run of so many steps of `rows` rows, every slot busy: when a request is over another takes its slot, and its
    prompt is computed whole in one row of the next step."""
    rng, requests = np.random.default_rng(seed), count()
    yield header(rows)
    request, first = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    prompt, left = np.zeros(rows, np.int32), np.zeros(rows, np.int32)  # left: tokens to come; none: the slot is free
    blocks: list[list[int]] = [[] for _ in range(rows)]
    free = list(range(rows * 64))[::-1]
    told = 0.0
    for number in range(steps):
        started = number * PERIOD
        ended = started + float(rng.uniform(0.7, 0.98)) * PERIOD
        events: Events = []
        for slot in np.flatnonzero(left == 0).tolist():
            request[slot], prompt[slot], left[slot] = next(requests), rng.integers(*PROMPTS), rng.integers(*ANSWERS)
            first[slot] = 0
            yield _submitted(rng, started, int(request[slot]), int(prompt[slot]))
        joins = first == 0
        counts = np.where(joins, prompt, 1).astype(np.int32)
        due = -(-(first + counts) // BLOCK)
        for slot in np.flatnonzero(joins | (first % BLOCK == 0)).tolist():
            own, owner = blocks[slot], int(request[slot])
            for place in range(len(own), int(due[slot])):
                own.append(free.pop())
                events.append((BlockEvent.TAKEN, own[-1], owner, place))
        left -= 1
        over = np.flatnonzero(left == 0).tolist()
        for slot in over:
            events += [(BlockEvent.FREED, b, int(request[slot]), place) for place, b in enumerate(blocks[slot])]
            free += blocks[slot]
            blocks[slot] = []
        yield StepStarted(started, number, rows, int(counts.sum()))
        kind = np.where(joins, Kind.PREFILL, Kind.DECODE)
        columns: Given = {"request": request, "first": first, "count": counts, "kind": kind, "reused": 0 * counts}
        yield _step(rng, number, started, ended, columns | {"free_blocks": len(free)}, events)
        for slot in over:
            yield Ended(ended, int(request[slot]), FinishReason.LENGTH)
        first += counts
        if ended > told:
            told += 0.5
            yield Telemetry(ended, float(rng.uniform(90, 110)), int(rng.integers(1 << 30, 2 << 30)), 8 << 30)


def _words(rng: np.random.Generator, size: int) -> list[str]:
    return [WORDS[i] + " " for i in rng.integers(0, len(WORDS), size).tolist()]


def _submitted(rng: np.random.Generator, time: float, request: int, prompt: int) -> Submitted:
    ids = freeze((rng.zipf(1.3, prompt).astype(np.int64) % 4096).astype(np.int32))
    params = SamplingParams(max_tokens=ANSWERS[1], temperature=0.8, seed=request)
    return Submitted(time, request, "".join(_words(rng, prompt)), ids, params)


def _step(rng: np.random.Generator, number: int, started: float, ended: float, rows: Given, blocks: Events) -> Step:
    size, texts = len(rows["request"]), _words(rng, len(rows["request"]))
    shares = rng.dirichlet((1, 2, 80, 5, 1, 2, 2)) * (ended - started)
    given: Given = {"token": rng.zipf(1.3, size).astype(np.int64) % 4096}
    given |= rows | {"logprob": -np.abs(rng.normal(0, 0.8, size))}
    given |= {"kv_used": int((rows["first"] + rows["count"]).sum()), "kv_reserved": int(rng.integers(0, 20_000))}
    given |= {"kv_internal": int(rng.integers(0, 1_000)), "attention": float(shares[2]) / 5}
    given["seconds"] = dict(zip(PHASES, shares.tolist()))
    return built_step(number, started, ended, texts=texts, blocks=blocks, **given)
