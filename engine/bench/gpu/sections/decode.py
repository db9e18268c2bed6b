"""Steady decoding through the engine, against the time in which a step's bytes can be read at all."""

from __future__ import annotations

import gc
import inspect
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from threading import Event
from typing import Any

import torch
from transformers import PreTrainedModel

from engine.bench.gpu.report import Bench, Table, columns, kept_rows
from engine.bench.gpu.sections.small_kernels import REPLAYED
from engine.bench.subject import Case, Lengths, Shape, make_case, plain_tokenizer
from engine.config.specs import EngineConfig
from engine.core.engine import Engine
from engine.kernels.dependent_launch import MOST_TOKENS, SWITCH, can_depend
from engine.models.loading import LoadedModel, wrap
from engine.trace.measures.decode_steps import decode_steps
from engine.trace.records import Kind, ModelCard, Step
from engine.trace.trace import Trace
from engine.trace.work import ITEMS

QWEN3 = "random Qwen3-0.6B"
PHASES = ("plan", "prepare", "forward", "sample", "wait", "commit", "record")
DECODE = columns("batch 6d | context 8d | step ms 9.3f | tok/s 10,.0f | bound ms 9.3f | of copy 8.0% | replayed 8.0%")
QWEN3_SHAPE = Shape(1024, 28, 16, 8, 3072, 151_936, 40_960, head_dim=128)
NODES, BESIDE = 9, 14  # launches of a captured decode step, a layer of Llama's and Qwen3's shape and beside the layers
ENDING = 10.0  # seconds that a load may take to end which is cancelled
TINY = Shape(32, 1, 2, 1, 64, 128, 256, head_dim=32)


@dataclass(frozen=True, slots=True)
class Decode:
    """Steady decoding of `batch` requests: median seconds from step to step. `bound` is the seconds in which a copy at
    `bandwidth` moves what a step must read: `weights_read` once, and the K and V of every context. `replayed`: the
    share of the steps that were a CUDA graph."""

    batch: int
    context: int
    seconds: float
    bound: float
    steps: int
    replayed: float

    @property
    def reached(self) -> float:
        """The share of the copy bandwidth that weights and KV were read at."""
        return self.bound / self.seconds

    @property
    def cells(self) -> tuple[Any, ...]:
        """Those of `DECODE`."""
        step = self.seconds * 1e3, self.batch / self.seconds
        return self.batch, self.context, *step, self.bound * 1e3, self.reached, self.replayed


def measure(bench: Bench, engine: Engine, batch: int, prompt: int, new: int) -> Decode:
    """Two runs, the first to warm up: `batch` prompts of one length that each get `new` tokens."""
    vocabulary = Shape(vocabulary=engine.card.vocabulary)
    case = Case(make_case(batch, vocabulary, Lengths(prompt, prompt)).prompts, (new,) * batch)
    for _ in range(1 if bench.rehearsal else 2):
        trace = engine.run(case.workload()).result()
    periods = [timing.period for timing in decode_steps(trace.steps, batch)]
    context = prompt + new // 2
    read = weights_read(engine.card) + batch * context * engine.card.kv_token_bytes
    return Decode(batch, context, median(periods), read / bench.watch.bandwidth, len(periods), replayed(trace))


def reckoned(bench: Bench, card: ModelCard, bound: float, steps: int = 1) -> str:
    """In words, the share of a `bound` in seconds over so many decode steps that there is to reach if every launch of
    these took as long as one of next to nothing; "" where that was not measured."""
    found = kept_rows(bench.sections.get("launches", {}))
    each = next((row["µs"] / 1e6 for row in found if row.get("") == REPLAYED), 0.0)
    taken = steps * each * (NODES * card.layers + BESIDE)
    return f" (reckoned by launches and bytes: {bound / (bound + taken):.0%})" if taken else ""


def weights_read(card: ModelCard) -> int:
    """Bytes of the weights that a step multiplies its tokens with: all but those of an embedding that is not the output
    layer as well, of which each token looks up a row."""
    embedding = card.vocabulary * card.hidden
    apart = card.parameters - card.body_parameters - card.head_parameters >= embedding
    return card.weight_bytes - apart * embedding * ITEMS[card.dtype]


def replayed(trace: Trace) -> float:
    """The share of a run's decode steps that were replayed as CUDA graphs."""
    steps = [step for step in trace.steps if step.rows and (step.kind == Kind.DECODE).all()]
    return sum(step.graph > 0 for step in steps) / max(len(steps), 1)


def random_qwen3(bench: Bench, layers: int = QWEN3_SHAPE.layers, tiny: Shape = TINY) -> PreTrainedModel:
    """A random model of Qwen3-0.6B's shape, bfloat16, on the GPU; at a rehearsal a `tiny` one."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = tiny if bench.rehearsal else replace(QWEN3_SHAPE, layers=layers)
    config = Qwen3Config(
        **shape.settings, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=0
    )
    torch.manual_seed(0)
    with torch.device(bench.watch.device):
        return Qwen3ForCausalLM(config).to(bench.watch.dtype).eval().requires_grad_(False)


def wrapped(module: PreTrainedModel, name: str, quantization: str = "none", fused: bool = True) -> LoadedModel:
    """The module as the engine takes it. Raises NotImplementedError for `fused` False where there is no such choice."""
    tokenizer = plain_tokenizer(module.config.vocab_size)
    if fused:
        return wrap(module, tokenizer, name, quantization)
    if "fused" not in inspect.signature(wrap).parameters:
        raise NotImplementedError("no model is fused yet")
    return wrap(module, tokenizer, name, quantization, fused=False)  # type: ignore[call-arg, unused-ignore]


def begun(model: LoadedModel, config: EngineConfig) -> Engine:
    """An engine; on a CPU, at a rehearsal, it does not try out how many threads are best. Whoever is interrupted while
    it loads leaves no load behind, which would be timed with what comes next."""
    cancelled = Event()
    try:
        return Engine(model, config, cancelled=cancelled, threads=1 if model.device.type == "cpu" else None)
    except BaseException:
        cancelled.set()
        for thread in threading.enumerate():
            if thread.name == "engine":
                thread.join(ENDING)
        raise


def tell_how(table: Table, engine: Engine) -> None:
    """What is fused of the model, what is not, and why there are no graphs where there are none: what its figures are
    figures of."""
    fusion, header = engine.model.fusion, engine.trace.header
    table.say(fusion.text if fusion is not None else "fused: nothing was tried")
    for what, why in (("no graphs", header.graphs_off), ("no graphs of steps with prompts", header.mixed_off)):
        if why:
            table.say(f"{what}: {why}")


def free_device_memory() -> None:
    """Gives the device's memory back after what held it has been deleted."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def decode(bench: Bench) -> None:
    """The small model at batches of 1 to 256: as shipped, without dependent launches, without graphs, without fused
    kernels."""
    prompt, new = (6, 4) if bench.rehearsal else (256, 64)
    batches: Sequence[int] = (2,) if bench.rehearsal else (1, 8, 32, 64, 256)
    wanted = (("", "12"), *DECODE, ("× shipped", "9.2f"))
    table = bench.table("A decode step of Qwen3-0.6B's shape in bfloat16, through the engine", wanted)
    shipped: dict[int, float] = {}
    ways: tuple[tuple[str, bool, bool, bool, Sequence[int]], ...] = (
        ("as shipped", True, True, True, batches),
        ("no launch depends", True, True, False, [batch for batch in batches if batch <= MOST_TOKENS]),
        ("no graphs", False, True, True, batches[::3]),
        ("not fused", True, False, True, batches[::3]),
    )
    for way, graphs, fused, dependent, tried in ways:
        if not bench.fits(1 if bench.rehearsal else 10, table, way):
            continue
        if not (dependent or bench.rehearsal or can_depend(bench.watch.device)):
            table.say("dependent launches need a GPU of compute capability 9.0 or newer")
            continue
        with switched(dependent):
            try:
                model = wrapped(random_qwen3(bench), QWEN3, fused=fused)
            except NotImplementedError as error:
                table.say(f"{way}: {error}")
                continue
            config = EngineConfig(max_running=max(batches), cuda_graphs=graphs, kv_memory=pool_bytes(bench))
            with begun(model, config) as engine:
                tell_how(table, engine)
                for batch in tried:
                    found = measure(bench, engine, batch, prompt, new)
                    first = shipped.setdefault(batch, found.seconds)
                    table.add(way, *found.cells, found.seconds / first)
            del model, engine
        free_device_memory()


@contextmanager
def switched(dependent: bool) -> Iterator[None]:
    """Dependent launches where they are shipped, or none, whatever the environment says."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "" if dependent else "0"
    try:
        yield
    finally:
        del os.environ[SWITCH]
        if before is not None:
            os.environ[SWITCH] = before


def pool_bytes(bench: Bench) -> int | None:
    """The KV pool that a run asks for: what is free, but little at a rehearsal."""
    return 1 << 20 if bench.rehearsal else None


def add_phases(table: Table, name: str, steps: Sequence[Step], batch: int) -> None:
    """A row of the host's median milliseconds in the decode steps of `batch` rows, and of the GPU's."""
    full = [step for step in steps if step.rows == batch and (step.kind == Kind.DECODE).all()]
    if full:
        on_host = (1e3 * median(step.seconds.get(phase, 0.0) for step in full) for phase in PHASES)
        table.add(name, batch, *on_host, 1e3 * median(step.device for step in full))
