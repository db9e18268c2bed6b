"""The yardstick: 256 requests at once to a model of Qwen3-0.6B's shape, in and out of 100 to 1024 tokens.

The same requests as those of nano-vllm's bench, drawn from the same seed. Beside it transformers' `generate_batch`, and
how much of a decode step the GPU is idle.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from itertools import pairwise
from statistics import median

import numpy as np

from engine.bench.gpu.report import Bench, Table, columns
from engine.bench.gpu.sections.decode import (
    PHASES,
    QWEN3,
    add_phases,
    begun,
    free_device_memory,
    pool_bytes,
    random_qwen3,
    reckoned,
    replayed,
    tell_how,
    weights_read,
    wrapped,
)
from engine.bench.gpu.stopwatch import Piece, idle_share
from engine.bench.subject import Case
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.core.engine import Engine
from engine.core.run import Run
from engine.trace.records import Kind, ModelCard, Step
from engine.trace.trace import Trace
from engine.workloads.workload import Arrival, Workload

REQUESTS, INPUT, OUTPUT = 256, 142_827, 133_966
TEMPERATURE = 0.6
GOAL, IDLE = 0.75, 0.03
KERNELS = 16  # that are listed
WINDOW = 0.5  # seconds in which they are watched
PAUSE = 20e-6  # seconds: longer than from one kernel of a graph to the next
RUNS = 3


def yardstick(requests: int = REQUESTS, low: int = 100, high: int = 1024, words: int = 10_000) -> Case:
    """The prompts first, all of them, then how many tokens each gets."""
    rng = random.Random(0)
    prompts = [[rng.randint(0, words) for _ in range(rng.randint(low, high))] for _ in range(requests)]
    return Case(tuple(map(tuple, prompts)), tuple(rng.randint(low, high) for _ in range(requests)))


def case_of(bench: Bench) -> Case:
    if bench.rehearsal:
        return yardstick(3, 3, 5, 100)
    case = yardstick()
    assert (sum(map(len, case.prompts)), case.output_tokens) == (INPUT, OUTPUT), "the draws are those of the yardstick"
    return case


def workload(case: Case) -> Workload:
    """All at once, sampled, none ends early."""
    params = SamplingParams(temperature=TEMPERATURE, ignore_eos=True)
    arrivals = (Arrival(0.0, list(p), params.with_(max_tokens=n)) for p, n in zip(case.prompts, case.new_tokens))
    return Workload("yardstick", tuple(arrivals))


def settings(bench: Bench) -> EngineConfig:
    if bench.rehearsal:
        return EngineConfig(max_running=4, token_budget=16, kv_memory=pool_bytes(bench))
    return EngineConfig(max_running=REQUESTS, token_budget=16_384, prefix_caching=False)


def bound(case: Case, card: ModelCard, bandwidth: float, operations: float) -> float:
    """Seconds that no engine is under: every weight multiplied with each prompt token at the device's matrix rate, then
    decode steps of all requests together that read weights and KV at its copy bandwidth."""
    prompts, new = np.array([len(p) for p in case.prompts]), np.array(case.new_tokens)
    seconds = 2.0 * card.body_parameters * prompts.sum() / operations
    for step in range(1, int(new.max())):  # the first token comes of the prompt
        running = new > step
        read = weights_read(card) + card.kv_token_bytes * (prompts[running] + step).sum()
        seconds += float(read) / bandwidth
    return float(seconds)


def throughput(bench: Bench) -> None:
    """The yardstick itself, some times over; where its decode steps' time goes on the host."""
    case, watch = case_of(bench), bench.watch
    model = wrapped(random_qwen3(bench), QWEN3)
    least = bound(case, model.card, watch.bandwidth, watch.operations)
    with begun(model, settings(bench)) as engine:
        traces = runs(bench, engine, case, "Yardstick")
        reached = median(least / trace.duration for trace in traces)
        share = reckoned(bench, model.card, least, max(case.new_tokens))
        bench.goal(f"of the bound of weights and KV at copy bandwidth: the yardstick{share}", GOAL, reached)
        trace = traces[-1]
        bench.goal("of the decode steps' time the GPU is idle between them", IDLE, idle_between(trace), "%", below=True)
        host = bench.table(
            "Median ms of a step, by phase on the host, and on the device",
            (("", "14"), ("rows", "5d"), *((phase, "8.3f") for phase in PHASES), ("device", "8.3f")),
        )
        for rows in sorted({step.rows for step in trace.steps if decodes(step)}, reverse=True)[
            :: max(1, len(case) // 5)
        ]:
            add_phases(host, "decode steps", trace.steps, rows)
    del model, engine
    free_device_memory()


def few(case: Case) -> Case:
    """Some of the requests, each with less to say, so that all numbers of rows are met in little time."""
    first = case.first(32)
    return Case(first.prompts, tuple(new // 8 for new in first.new_tokens))


def runs(bench: Bench, engine: Engine, case: Case, title: str, count: int = RUNS) -> list[Trace]:
    """The yardstick some times over, as rows of a table."""
    least = bound(case, engine.card, bench.watch.bandwidth, bench.watch.operations)
    table = bench.table(
        f"{title}: {len(case)} requests, {sum(map(len, case.prompts)):,} tokens in, {case.output_tokens:,} out",
        columns(
            "run 4d | seconds 8.2f | tok/s 9,.0f | bound s 8.2f | of bound 8.0% | steps 6d | decode ms 9.2f | "
            "replayed 8.0% | wasted 7d | preempted 9d"
        ),
    )
    tell_how(table, engine)
    if not bench.rehearsal:
        engine.run(workload(few(case))).result()  # kernels for shapes that warming up did not meet
    traces: list[Trace] = []
    for run in range(1 if bench.rehearsal else count):
        if run and not bench.fits(1.2 * traces[-1].duration, table, f"run {run + 1}"):
            break
        traces.append(trace := engine.run(workload(case)).result())
        add_run(table, run + 1, trace, case.output_tokens / trace.duration, least)
    return traces


def kernels(bench: Bench) -> None:
    """Where the GPU's time goes in the yardstick's decode steps."""
    case, model = case_of(bench), wrapped(random_qwen3(bench), QWEN3)
    with begun(model, settings(bench)) as engine:
        if not bench.rehearsal:
            engine.run(workload(few(case))).result()
        tell_pieces(bench, watched(bench, engine, case), "the yardstick's decode steps")
    del model, engine
    free_device_memory()


def decodes(step: Step) -> bool:
    return step.rows > 0 and bool((step.kind == Kind.DECODE).all())


def idle_between(trace: Trace) -> float:
    """The share of the time from one decode step's start to the next one's that the step does not take by the device's
    own clock, which runs from where it comes to the step to where it is done; NaN where there is no such clock."""
    pairs = [(step, after) for step, after in pairwise(trace.steps) if decodes(step) and decodes(after)]
    whole, busy = sum(after.started - step.started for step, after in pairs), sum(step.device for step, _ in pairs)
    return 1 - busy / whole if busy else math.nan


def add_run(table: Table, number: int, trace: Trace, rate: float, least: float) -> None:
    steps = trace.steps
    spans = [after.started - step.started for step, after in pairwise(steps) if decodes(step) and decodes(after)]
    wasted = int(sum(step.wasted.sum() for step in steps))
    preempted = int(sum(len(step.preempted) for step in steps))
    took, decode = trace.duration, 1e3 * median(spans)
    table.add(number, took, rate, least, least / took, len(steps), decode, replayed(trace), wasted, preempted)


def watched(bench: Bench, engine: Engine, case: Case) -> list[Piece]:
    """What the GPU did in a while of decoding all the requests."""
    runs: list[Run] = []

    def begin() -> None:
        runs.append(engine.run(workload(case)))
        decoding(runs[0], len(case))

    pieces = bench.watch.pieces(begin, WINDOW)
    runs[0].cancel()
    runs[0].result(30)
    return pieces


def decoding(run: Run, rows: int) -> None:
    """Returns when a run is in its decode steps, or over."""
    at = 0
    while not run.done:
        for record in run.trace.since(at):
            at += 1
            if isinstance(record, Step) and decodes(record) and record.rows >= 0.9 * rows:
                return
        time.sleep(0.005)


def tell_pieces(bench: Bench, pieces: list[Piece], steps: str) -> None:
    """The idle share, and the kernels that take the most time."""
    wanted = columns("share 6.1% | times 6d | each µs 8.1f | 60")
    table = bench.table(f"What the GPU does in a while of {steps}", wanted)
    if len(pieces) < 2:
        table.say("the profiler saw nothing of the GPU")
        return
    intervals = [(piece.begun, piece.ended) for piece in pieces]
    whole = max(p.ended for p in pieces) - min(p.begun for p in pieces)
    table.add(idle_share(intervals), None, None, "idle, between the kernels of a step too")
    table.add(
        idle_share(intervals, PAUSE), None, None, f"of it in pauses of {1e6 * PAUSE:.0f} µs and more: for the host"
    )
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    for piece in pieces:
        by_name[piece.name].append(piece.ended - piece.begun)
    for name in sorted(by_name, key=lambda n: -sum(by_name[n]))[:KERNELS]:
        times = by_name[name]
        table.add(sum(times) / whole, len(times), 1e6 * sum(times) / len(times), name[:90])
