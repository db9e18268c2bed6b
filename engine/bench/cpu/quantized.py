"""`batchscope bench --quantization all`: a model of 100 M parameters in every quantization, on the CPU, or, with
`--mixture`, one of 320 M, nine tenths of which are experts.

The same random weights each time, saved once in bfloat16 and loaded as any model is. All sides decode in turn, round
by round, each with the number of threads that is its best; what is compared are medians of one run.
"""

import gc
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch
from tqdm import tqdm

from engine.bench.asked_share import asked_share
from engine.bench.bars import no_bars
from engine.bench.cpu.alone import alone
from engine.bench.cpu.noise import Noise, NoiseMeter
from engine.bench.cpu.rounded_awq import save_rounded_awq
from engine.bench.subject import Case, Experts, Lengths, Shape, make_case, plain_tokenizer, random_llama, random_mixture
from engine.config.schemes import SCHEMES, missing
from engine.config.specs import EngineConfig, ModelSpec
from engine.core import machine
from engine.core.engine import Engine
from engine.memory.allocator import keep_freed_memory
from engine.models.loading import LoadedModel, load
from engine.trace.measures.decode_steps import decode_steps
from engine.trace.records import Machine, Roof

SHAPE = Shape(hidden=768, layers=14, heads=12, kv_heads=6, intermediate=2048)  # 104 M parameters
EXPERTS = Experts(32, 4, 512)
MIXTURE = Shape(hidden=768, layers=8, heads=12, kv_heads=6, vocabulary=4096)  # 322 M parameters with these experts
BATCHES = (1, 16)
PROMPT = 32  # tokens of each prompt
TRIAL = 8  # decode steps by which the number of threads is chosen


@dataclass(frozen=True, slots=True)
class Decode:
    """Steady decoding of `batch` rows on `threads` threads. `seconds` of a step: the median of each round. `read` are
    the bytes that a step reads at the least: weights, and keys and values of every row; `bound` is the seconds in which
    this machine copies as many."""

    batch: int
    threads: int
    seconds: tuple[float, ...]
    read: int
    bound: float

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.batch / median(self.seconds)


@dataclass(frozen=True, slots=True)
class Side:
    """One way to hold the weights; `absent` says why it was not measured."""

    quantization: str
    dtype: str
    load_seconds: float = 0.0
    weight_bytes: int = 0
    decodes: tuple[Decode, ...] = ()
    absent: str = ""

    @property
    def name(self) -> str:
        return f"{self.quantization}, {self.dtype}" if self.quantization == "none" else self.quantization


@dataclass(frozen=True, slots=True)
class QuantizedReport:
    """What was found; the second side, none in bfloat16, is what the others are compared with."""

    model: str
    machine: Machine
    versions: dict[str, str]
    rounds: int
    sides: tuple[Side, ...]
    noise: Noise
    seconds: float

    def times(self, decode: Decode) -> float:
        """Tokens a second against dense bfloat16 at the same batch: the median over rounds, each against its own."""
        dense = next(d for d in self._dense.decodes if d.batch == decode.batch)
        return median(theirs / ours for theirs, ours in zip(dense.seconds, decode.seconds))

    @property
    def _dense(self) -> Side:
        return next(side for side in self.sides if (side.quantization, side.dtype) == ("none", "bfloat16"))

    def json(self) -> str:
        """Every number, with the derived ones."""
        values = asdict(self)
        for given, side in zip(values["sides"], self.sides):
            for entry, decode in zip(given["decodes"], side.decodes):
                entry["tokens_per_second"], entry["times_dense_bfloat16"] = decode.rate, self.times(decode)
        values["noise"]["busy"] = self.noise.busy
        return json.dumps(values, indent=1)

    def text(self) -> str:
        lines = [
            self.model,
            f"{self.machine.cpu}, {self.machine.cores} cores, {self.machine.memory / 2**30:.0f} GiB; "
            + ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            f"All sides in turn; medians of {self.rounds} rounds; quantized weights compute in bfloat16.",
            self.noise.text(),
        ]
        for i, batch in enumerate(d.batch for d in self._dense.decodes):
            lines += ["", f"Decoding, batch {batch}"]
            lines.append(
                f"  {'':16} {'load s':>7} {'weights MB':>11} {'tok/s':>9} {'× dense bf16':>13} "
                f"{'threads':>8} {'bound tok/s':>12} {'of bound':>9}"
            )
            for side in self.sides:
                if side.absent:
                    lines.append(f"  {side.name:16} {side.absent}")
                    continue
                d = side.decodes[i]
                lines.append(
                    f"  {side.name:16} {side.load_seconds:7.2f} {side.weight_bytes / 1e6:11.1f} {d.rate:9,.1f} "
                    f"{self.times(d):13.2f} {d.threads:8} {batch / d.bound:12,.1f} {d.bound * d.rate / batch:9.0%}"
                )
        lines += [
            "",
            "Bound: the bytes of all weights but the embedding and experts that nobody asks, and of the rows' keys and",
            "values, at the speed at which this machine copies.",
            f"The run took {self.seconds:.0f} s.",
        ]
        return "\n".join(lines)


class Loaded:
    """A model that was loaded for the bench, and its decoding."""

    def __init__(self, folder: Path, quantization: str, dtype: str) -> None:
        self.quantization, self.dtype = quantization, dtype
        begun = time.perf_counter()
        self.model: LoadedModel = alone(partial(load, ModelSpec(str(folder), quantization, dtype, "cpu")))
        self.load_seconds = time.perf_counter() - begun
        self.seconds: dict[int, list[float]] = {}
        self.threads: dict[int, int] = {}
        self._roofs: dict[int, Roof] = {}
        self._asked: dict[int, float] = {}

    def step_seconds(self, batch: int, new_tokens: int, threads: int) -> float:
        """The median decode step of `batch` rows; the engine is made and warmed up off the clock."""
        shape = Shape(vocabulary=self.model.card.vocabulary)
        case = Case(make_case(batch, shape, Lengths(PROMPT, PROMPT)).prompts, (new_tokens,) * batch)
        with Engine(self.model, EngineConfig(max_running=batch), threads=threads) as engine:
            assert engine.roof is not None
            self._roofs[threads] = engine.roof
            trace = engine.run(case.workload()).result()
        self._asked[batch] = asked_share(self.model.card, trace, batch)
        return median(timing.step for timing in decode_steps(trace.steps, batch))

    def choose_threads(self, batch: int, choices: Sequence[int]) -> None:
        """Tries each number twice, in turn: other processes come and go."""
        self.seconds[batch], self.threads[batch] = [], choices[0]
        if len(choices) > 1:
            tried = [{n: self.step_seconds(batch, TRIAL, n) for n in choices} for _ in range(2)]
            self.threads[batch] = min(choices, key=lambda n: min(found[n] for found in tried))

    def measure(self, batch: int, new_tokens: int) -> None:
        self.seconds[batch].append(self.step_seconds(batch, new_tokens, self.threads[batch]))

    def side(self, new_tokens: int) -> Side:
        card = self.model.card
        head = card.head_parameters * self.model.dtype.itemsize
        decodes = []
        for batch, seconds in self.seconds.items():
            multiplied = card.body_parameters - round((1 - self._asked[batch]) * card.expert_parameters)
            context = batch * (PROMPT + new_tokens // 2)
            read = round(multiplied * card.bytes_per_weight) + head + context * card.kv_token_bytes
            bandwidth = self._roofs[self.threads[batch]].bandwidth_at(read)
            decodes.append(Decode(batch, self.threads[batch], tuple(seconds), read, read / bandwidth))
        return Side(self.quantization, self.dtype, self.load_seconds, card.weight_bytes, tuple(decodes))


def save_subject(folder: Path, shape: Shape, experts: Experts | None = None) -> Path:
    """A random model in bfloat16 with a tokenizer, as files: a Llama, or with experts a mixture."""
    module = random_llama(shape) if experts is None else random_mixture(shape, experts)
    module.to(torch.bfloat16).save_pretrained(folder)
    plain_tokenizer(shape.vocabulary).save_pretrained(folder)
    return folder


def run(
    quantizations: Sequence[str] = tuple(SCHEMES),
    rounds: int = 3,
    threads: int | None = None,
    *,
    shape: Shape = SHAPE,
    experts: Experts | None = None,
    batches: Sequence[int] = BATCHES,
    new_tokens: int = 32,
    progress: bool = True,
) -> QuantizedReport:
    """Measures these quantizations, and none in float32 and bfloat16 whatever is asked for. `threads` None: of 1 and
    all cores the faster, for each side and batch. With `experts` of a mixture."""
    begun, meter = time.perf_counter(), NoiseMeter()
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # this thread only looks on: see `alone`
    choices = [threads] if threads else sorted({1, machine.usable_cores()})
    asked = [q for q in quantizations if q != "none" and (experts or not SCHEMES[q].experts_only)]
    wanted = [("none", "float32"), ("none", "bfloat16")] + [(q, "bfloat16") for q in asked]
    sides: list[Loaded | Side] = []
    total = len(wanted) * (1 + len(batches) * (rounds + 1))
    with (
        no_bars(),
        tempfile.TemporaryDirectory(prefix="batchscope-bench-") as scratch,
        tqdm(total=total, file=sys.stderr, disable=not progress, bar_format="{bar:20} {n}/{total} {postfix}") as say,
    ):
        say.set_postfix_str("making the model")
        plain = save_subject(Path(scratch) / "plain", shape, experts)
        awq = save_rounded_awq(plain, Path(scratch) / "awq", 128) if "awq" in quantizations else plain
        try:
            for quantization, dtype in wanted:
                say.set_postfix_str(f"loading {quantization}")
                lacking = missing(quantization)
                folder = awq if quantization == "awq" else plain
                sides.append(
                    Side(quantization, dtype, absent=lacking) if lacking else Loaded(folder, quantization, dtype)
                )
                say.update()
            there = [side for side in sides if isinstance(side, Loaded)]
            for batch in batches:
                for side in there:
                    say.set_postfix_str(f"{side.quantization}, batch {batch}: finding its best number of threads")
                    side.choose_threads(batch, choices)
                    say.update()
            for turn in range(rounds):
                for batch in batches:
                    for side in there:
                        say.set_postfix_str(f"{side.quantization}, batch {batch}, round {turn + 1}")
                        side.measure(batch, new_tokens)
                        say.update()
        finally:
            torch.set_num_threads(before)
    card = there[0].model.card
    report = QuantizedReport(
        model=f"Random {_kind(experts)} of {card.parameters / 1e6:.1f} M parameters, prompts of {PROMPT} tokens",
        machine=machine.describe(max(choices)),
        versions=machine.versions(),
        rounds=rounds,
        sides=tuple(side if isinstance(side, Side) else side.side(new_tokens) for side in sides),
        noise=meter.read(),
        seconds=time.perf_counter() - begun,
    )
    sides.clear()
    there.clear()
    gc.collect()
    return report


def _kind(experts: Experts | None) -> str:
    if experts is None:
        return "Llama"
    return f"mixture with {experts.count} experts a layer, {experts.each} a token,"
