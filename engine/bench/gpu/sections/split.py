"""One model on one card, split over two by heads and by layers: what the second one buys, and what it costs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from engine.bench.bars import no_bars
from engine.bench.gpu.report import Bench, Table, columns
from engine.bench.gpu.sections.decode import QWEN3_SHAPE, free_device_memory, pool_bytes, random_qwen3
from engine.bench.subject import Case, Lengths, Shape, make_case, plain_tokenizer
from engine.compare.token_agreement import agreement
from engine.config.parallel import Parallel
from engine.config.specs import EngineConfig, ModelSpec
from engine.core.engine import Engine
from engine.trace.measures.decode_steps import decode_steps
from engine.trace.records import Kind, Step
from engine.trace.trace import Trace

TINY = Shape(32, 2, 4, 2, 64, 128, 256, head_dim=16)
USUAL = EngineConfig()
# Steps one behind the other hide the host's time; of those that are replayed nobody tells what ranks exchanged.
WAYS: dict[str, tuple[Parallel, EngineConfig]] = {
    "one card": (Parallel(), USUAL),
    "two": (Parallel(2), USUAL),
    "two, a step behind": (Parallel(2), replace(USUAL, depth=1)),
    "two, no graphs": (Parallel(2), replace(USUAL, cuda_graphs=False)),
    "two, rows shared": (Parallel(2, sequence=True), USUAL),
    "two stages": (Parallel(pipeline=2), USUAL),
    "two stages, 4 parts": (Parallel(pipeline=2, micro_batches=4), USUAL),
    "two stages, no graphs": (Parallel(pipeline=2), replace(USUAL, cuda_graphs=False)),
}
REHEARSED = ("one card", "two")
SECONDS = 18.0  # that a way takes
COLUMNS = columns(
    "way 21 | batch 6d | tok/s 10,.0f | step ms 9.3f | × one 7.2f | forward ms 10.3f | exchanging ms 13.3f | "
    "waiting ms 10.3f | bytes a step 13,d | tokens 8"
)


def split(bench: Bench, first: torch.device) -> None:
    """Each way loads the same checkpoint, the first rank on card `first`, and decodes the same prompts."""
    table = bench.table("Qwen3-0.6B's shape in bfloat16 on one card, and split over two", COLUMNS)
    shape = TINY if bench.rehearsal else QWEN3_SHAPE
    ways = {name: way for name, way in WAYS.items() if not bench.rehearsal or name in REHEARSED}
    batches, lengths, new = ((2,), Lengths(6, 6), 4) if bench.rehearsal else ((1, 64), Lengths(256, 256), 96)
    with tempfile.TemporaryDirectory() as folder:
        with no_bars():
            random_qwen3(bench, tiny=TINY).save_pretrained(folder)
        plain_tokenizer(shape.vocabulary).save_pretrained(folder)
        free_device_memory()
        alone: dict[int, Trace] = {}
        for name, (parallel, config) in ways.items():
            if not bench.fits(0 if bench.rehearsal else SECONDS, table, name):
                continue
            config = replace(config, max_running=max(batches), kv_memory=pool_bytes(bench))
            dtype = str(bench.watch.dtype).removeprefix("torch.")
            spec = ModelSpec(str(Path(folder)), dtype=dtype, device=str(first), parallel=parallel)
            with Engine(spec, config, threads=1 if first.type == "cpu" else None) as engine:
                for batch in batches:
                    prompts = make_case(batch, shape, lengths).prompts
                    case = Case(prompts, (new,) * batch)
                    for _ in range(1 if bench.rehearsal else 2):  # the first warms up
                        trace = engine.run(case.workload()).result()
                    add(table, name, batch, trace, alone.setdefault(batch, trace))
                if why := engine.trace.header.graphs_off:
                    table.say(f"{name}: no graphs: {why}")
            free_device_memory()


def add(table: Table, name: str, batch: int, trace: Trace, alone: Trace) -> None:
    """A row: medians of the decode steps of a batch, rank 0's."""
    steps = [step for step in trace.steps if step.rows == batch and (step.kind == Kind.DECODE).all()]
    told = [step for step in steps if len(step.rank_bytes)]
    period = _period(trace, batch)
    exchanging = 1e3 * median(float(step.rank_communicating[0]) for step in told) if told else None
    waiting = 1e3 * median(float(step.rank_waiting[0]) for step in told) if told else None
    sent = int(median(int(step.rank_bytes.max()) for step in told)) if told else None
    same = "" if trace is alone else str(agreement(alone, trace).verdict)
    forward = _forward(steps)
    table.add(
        name, batch, batch / period, 1e3 * period, _period(alone, batch) / period, 1e3 * forward, exchanging, waiting,
        sent, same,
    )  # fmt: skip


def _period(trace: Trace, batch: int) -> float:
    return median(timing.period for timing in decode_steps(trace.steps, batch))


def _forward(steps: Sequence[Step]) -> float:
    """By the device's clock, where it has one."""
    return median(step.device or step.seconds["forward"] for step in steps)
