"""`batchscope bench`: this engine, its peers and the bound on the CPU, in one process, one after the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy as np
import torch
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from engine.bench.cpu import bound, peers
from engine.bench.cpu.alone import alone
from engine.bench.cpu.noise import NoiseMeter
from engine.bench.cpu.outside import OutsidePeer
from engine.bench.cpu.report import CaseReport, Report, StepReport, Throughput
from engine.bench.cpu.scheduling import scheduler_seconds
from engine.bench.cpu.workload_bound import Products, bound_of, measured_roof
from engine.bench.subject import Case, Lengths, Shape, make_case, plain_tokenizer, random_llama, twin
from engine.config.specs import EngineConfig
from engine.core import machine
from engine.core.engine import Engine
from engine.memory.allocator import keep_freed_memory
from engine.models.loading import LoadedModel, wrap
from engine.models.packed_linear import pack_linears
from engine.trace.measures.decode_steps import Timing, decode_steps
from engine.trace.timed_kernels import ATTENTION, kernel_times
from engine.trace.trace import Trace

ONE_BY_ONE_PROMPTS = 6  # a prompt costs the same however many there are, so a few tell the rate


@dataclass
class OwnStaticBatch:
    """This engine doing what its peer does: batches of eight, padded on the left, that end with their longest row."""

    model: LoadedModel
    threads: int
    name = f"this engine, static batch of {peers.STATIC_BATCH}"

    @property
    def settings(self) -> str:
        return f"mode static, {peers.threads_in_words(self.threads)}"

    def seconds(self, case: Case) -> float:
        config = EngineConfig(mode="static", max_running=peers.STATIC_BATCH)
        return play(self.model, config, self.threads, case).duration


def play(model: LoadedModel, config: EngineConfig, threads: int, case: Case) -> Trace:
    """The trace of a case through this engine, which is made and warmed up off the clock."""
    with Engine(model, config, threads=threads) as engine:
        if engine.runner.populating is not None:
            engine.runner.populating.join()
        return engine.run(case.workload()).result()


class Sides:
    """This engine and its peers over the same weights, each at its best settings."""

    def __init__(
        self,
        shape: Shape,
        lengths: Lengths,
        counts: Sequence[int],
        threads: int | None,
        dtype: torch.dtype,
        outside: Sequence[OutsidePeer],
        say: tqdm[None],
    ) -> None:
        self.shape, self.lengths = shape, lengths
        self.plain = random_llama(shape).to(dtype)
        self.model: LoadedModel = wrap(twin(self.plain), plain_tokenizer(shape.vocabulary), "random Llama")
        self.config = EngineConfig(max_running=max(counts), prefix_caching=False)
        cores = machine.usable_cores()
        self.choices = [threads] if threads else sorted({1, min(2, cores), cores})
        trial = shorten(make_case(8, shape, lengths), 12)
        say.set_postfix_str("finding each side's best settings")
        self.threads = min(self.choices, key=lambda t: self._trial(trial, t))
        say.update()
        self.peers: list[peers.Peer] = []
        own: list[peers.Peer] = [OwnStaticBatch(self.model, t) for t in self.choices]
        for candidates, case in (
            (own, trial),
            (peers.continuous_batches(self.plain, self.choices), trial),
            (peers.static_batches(self.plain, self.choices), trial),
            (peers.one_by_one(self.plain, self.choices), trial.first(2)),
        ):
            self.peers.append(peers.fastest(candidates, case))
            say.update()
        for peer in outside:
            say.set_postfix_str(f"starting {peer.name}")
            peer.start(self.plain, max(counts), shape.context)
            self.peers.append(peer)
            say.update()
        self.products = Products(self.model, self.threads, max(counts))
        self.roof = measured_roof(self.model, self.threads)

    def _trial(self, trial: Case, threads: int) -> float:
        if len(self.choices) == 1:
            return 0.0
        return min(self.play(trial, threads).duration for _ in range(3))

    def play(self, case: Case, threads: int | None = None) -> Trace:
        return play(self.model, self.config, threads or self.threads, case)


def shorten(case: Case, new_tokens: int) -> Case:
    return replace(case, new_tokens=tuple(min(n, new_tokens) for n in case.new_tokens))


def measure_case(sides: Sides, count: int, rounds: int, say: tqdm[None]) -> CaseReport:
    """All sides in turn, `rounds` times."""
    case = make_case(count, sides.shape, sides.lengths)
    few = case.first(ONE_BY_ONE_PROMPTS)
    given = [few if isinstance(peer, peers.OneByOne) else case for peer in sides.peers]
    seconds: list[list[float]] = [[] for _ in sides.peers]
    own: list[Trace] = []
    for turn in range(rounds):
        say.set_postfix_str(f"{count} prompts, round {turn + 1}: this engine")
        own.append(sides.play(case))
        say.update()
        sides.products.measure()
        for peer, work, times in zip(sides.peers, given, seconds):
            say.set_postfix_str(f"{count} prompts, round {turn + 1}: {peer.name}")
            times.append(alone(partial(peer.seconds, work)))
            say.update()
    words = f"{peers.threads_in_words(sides.threads)}, block size {sides.config.block_size}, mode {sides.config.mode}"
    engine = Throughput("this engine", words, count, case.output_tokens, tuple(trace.duration for trace in own))
    others = [
        Throughput(peer.name, peer.settings, len(work), work.output_tokens, tuple(times))
        for peer, work, times in zip(sides.peers, given, seconds)
    ]
    bound = bound_of(case, sides.model, sides.products, sides.roof)
    middle = sorted(own, key=lambda trace: trace.duration)[len(own) // 2]
    return CaseReport(count, sum(map(len, case.prompts)), case.output_tokens, (engine, *others), bound, spent(middle))


def spent(trace: Trace) -> dict[str, float]:
    """Seconds of a run by what was done; empty where no step was replayed. Between the kernels is Python, and what of
    it other threads did not compute beside."""
    times = kernel_times(trace.header, trace.steps)
    if times is None:
        return {}
    products = float(times.seconds[np.array(times.kernels.weights) > 0].sum())
    attention = float(times.seconds[times.kernels.names.index(ATTENTION)])
    kernels = float(times.seconds.sum())
    return {
        "products": products,
        "attention": attention,
        "other kernels": kernels - products - attention,
        "between them": trace.duration - kernels,
    }


def steady_case(sides: Sides, batch: int, new_tokens: int) -> tuple[Case, int]:
    """`batch` prompts that decode together from first to last, and their mean context: that of the workload's decode
    steps."""
    whole = make_case(batch, sides.shape, sides.lengths)
    positions = [len(p) + t for p, n in zip(whole.prompts, whole.new_tokens) for t in range(1, n)]
    context = max(round(sum(positions) / max(len(positions), 1)), new_tokens + 4)
    middle = context - new_tokens // 2
    spread = Lengths(max(2, middle // 2), middle + middle - max(2, middle // 2))
    prompts = make_case(batch, sides.shape, spread, seed=1).prompts
    case = Case(prompts, (new_tokens,) * batch)
    return case, round(sum(map(len, prompts)) / batch) + new_tokens // 2


def measure_step(sides: Sides, batch: int, rounds: int, new_tokens: int, say: tqdm[None]) -> StepReport:
    """The engine's full decode steps and the bare forwards at the same batch and mean context, in turn."""
    case, context = steady_case(sides, batch, new_tokens)
    packed = twin(sides.plain)
    pack_linears(packed)
    ways = {
        "plain weights, StaticCache": bound.static_cache_step(twin(sides.plain), batch, context),
        "plain weights, least attention": bound.dense_step(twin(sides.plain), batch, context),
        "packed weights, least attention": bound.dense_step(packed, batch, context),
    }
    best = {name: min(sides.choices, key=lambda t: median(bound.step_seconds(way, t, 4))) for name, way in ways.items()}
    bare: dict[str, list[float]] = {name: [] for name in ways}
    own: list[Timing] = []
    for turn in range(rounds):
        say.set_postfix_str(f"decode steps of {batch}, round {turn + 1}")
        own += decode_steps(sides.play(case).steps, batch)
        for name, way in ways.items():
            bare[name] += bound.step_seconds(way, best[name], max(new_tokens // 2, 3))
        say.update()
    return StepReport(
        batch,
        context,
        engine=median(timing.step for timing in own),
        forward=median(timing.forward for timing in own),
        outside=median(timing.outside for timing in own),
        bounds={name: median(times) for name, times in bare.items()},
    )


def run(
    prompts: Sequence[int] = (24, 64),
    rounds: int = 3,
    threads: int | None = None,
    *,
    shape: Shape | None = None,
    lengths: Lengths | None = None,
    step_tokens: int = 24,
    waiting: Sequence[int] = (100, 10_000),
    progress: bool = True,
    dtype: torch.dtype = torch.float32,
    outside: Sequence[OutsidePeer] = (),
) -> Report:
    """Measures everything and returns the report; says on stderr how far it is. `threads` None: each side's best."""
    begun, meter = time.perf_counter(), NoiseMeter()
    allocator = keep_freed_memory()
    transformers_logging.set_verbosity_error()
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # this thread only looks on: see `alone`
    total = 5 + len(outside) + len(prompts) * rounds * (6 + len(outside)) + len(waiting)
    with tqdm(total=total, file=sys.stderr, disable=not progress, bar_format="{bar:20} {n}/{total} {postfix}") as say:
        try:
            sides = Sides(shape or Shape(), lengths or Lengths(), prompts, threads, dtype, outside, say)
            cases = tuple(measure_case(sides, count, rounds, say) for count in prompts)
            steps = tuple(measure_step(sides, count, rounds, step_tokens, say) for count in prompts)
        finally:
            torch.set_num_threads(before)
            for peer in outside:
                peer.close()
        scheduler = {}
        for count in waiting:
            say.set_postfix_str(f"scheduling with {count:,} waiting")
            scheduler[count] = scheduler_seconds(count)
            say.update()
    card = sides.model.card
    return Report(
        model=f"Random Llama of {card.parameters / 1e6:.1f} M parameters, {card.dtype} on {card.device}",
        machine=machine.describe(sides.threads),
        versions=machine.versions(),
        allocator=allocator,
        rounds=rounds,
        threads=sides.threads,
        cases=cases,
        steps=steps,
        scheduler=scheduler,
        noise=meter.read(),
        seconds=time.perf_counter() - begun,
    )
