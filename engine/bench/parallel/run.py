"""`batchscope bench --parallel`: one device and ways of splitting over two ranks side by side, communication apart."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from engine.bench.bars import no_bars
from engine.bench.cpu.rounded_awq import save_rounded_awq
from engine.bench.subject import Lengths, Shape, make_case, plain_tokenizer, random_llama
from engine.compare.token_agreement import Verdict, agreement
from engine.config.parallel import Parallel
from engine.config.specs import EngineConfig, ModelSpec
from engine.core.engine import Engine
from engine.core.machine import usable_cores
from engine.memory.rules import residual_bytes
from engine.trace.records import Kind, Step
from engine.trace.trace import Trace

ROWS = 16
MOST = 0.05  # of a step: the goal of what the machinery beside the forward may take
WAYS = {"one device": Parallel(), "tensor": Parallel(2), "tensor and sequence": Parallel(2, sequence=True)}
STAGED = "pipeline"
EXACT = "none", "awq", "nf4"  # ranks have the codes of one device
WAYS[STAGED] = Parallel(pipeline=2)


@dataclass(frozen=True, slots=True)
class Side:
    """One way of computing the same prompts; medians of decode steps of all rows, in milliseconds. `machinery`: what
    rank 0 does in a step to have others compute with it; `communicating`, `waiting` and `sent` (bytes) are rank 0's,
    within the forward. Bytes of a rank's `weights`, and what it holds at the largest step: `activations`, and of these
    `residuals` with their norms."""

    name: str
    ranks: int
    meets: str
    tokens: float
    step: float
    forward: float
    machinery: float
    communicating: float
    waiting: float
    sent: int
    weights: int
    activations: int
    residuals: int


@dataclass(frozen=True, slots=True)
class Measured:
    sides: tuple[Side, ...]
    same: bool | None  # tokens; None where sums are rounded otherwise, or each rank quantizes its own part
    threads: int
    dtype: str
    quantization: str

    @property
    def share(self) -> float:
        """Of a step of split layers that machinery and waiting take; stages wait by their nature."""
        layered = [side for side in self.sides if side.ranks > 1 and side.name != STAGED]
        return max((side.machinery + side.waiting) / side.step for side in layered)

    @property
    def reached(self) -> bool:
        return self.same is not False and self.share <= MOST

    def text(self) -> str:
        """As Markdown."""
        held = self.dtype if self.quantization == "none" else f"{self.quantization}, {self.dtype}"
        head = f"33.6 M parameters, {held}, {ROWS} rows, torch threads a rank: {self.threads}"
        columns = [("output tok/s", "tokens", ",.0f"), ("a decode step, ms", "step", ".2f")]
        columns += [("its forward, ms", "forward", ".2f"), ("of it communication, ms", "communicating", ".2f")]
        columns += [
            ("of it waiting for others, ms", "waiting", ".2f"),
            ("plans sent and times read, ms", "machinery", ".3f"),
        ]
        columns += [
            ("bytes a rank sends in a step", "sent", ",d"),
            ("weights of a rank", "weights", ",d"),
            ("activations at the largest step", "activations", ",d"),
        ]
        columns += [("residuals and norms of them, at most", "residuals", ",d")]
        lines = [f"| {head} | {' | '.join(side.name for side in self.sides)} |", f"|---|{'--:|' * len(self.sides)}"]
        lines += [
            f"| {title} | {' | '.join(format(getattr(side, name), form) for side in self.sides)} |"
            for title, name, form in columns
        ]
        lines += ["", f"machinery and waiting: {self.share:.1%} of a step (goal: at most {MOST:.0%})"]
        told = {True: "the same", False: "NOT the same", None: "not compared, since ranks round otherwise"}
        return "\n".join([*lines, f"tokens: {told[self.same]}"])


def run(rounds: int, threads: int | None, dtype: str, json_output: bool, quantization: str = "none") -> int:
    """Measures and prints. 0 where tokens are the same and the goal is reached, else 1."""
    measured = measure(rounds, threads, dtype, Shape(), quantization)
    print(json.dumps(asdict(measured), indent=2) if json_output else measured.text())
    return int(not measured.reached)


def measure(rounds: int, threads: int | None, dtype: str, shape: Shape, quantization: str = "none") -> Measured:
    """The sides in turns, so many rounds after one that warms up."""
    case = make_case(2 * ROWS, shape, Lengths())
    each = threads or max(1, usable_cores() // max(way.ranks for way in WAYS.values()))
    config = EngineConfig(max_running=ROWS)
    traces: dict[str, list[Trace]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_:
        source = Path(folder) / "plain"
        save(source, shape)
        if quantization == "awq":
            with no_bars():
                source = save_rounded_awq(source, Path(folder) / "awq")
        spec = ModelSpec(str(source), quantization, dtype, "cpu")
        engines = {
            name: open_.enter_context(Engine(replace(spec, parallel=way), config, threads=each))
            for name, way in WAYS.items()
        }
        spent: dict[str, list[float]] = {name: [] for name in WAYS}
        for turn in range(rounds + 1):
            for name, engine in engines.items():
                others = engine.model.ranks
                if others is not None:
                    others.spent.clear()
                trace = engine.run(case.workload()).result()
                if turn:  # the first warms up
                    traces[name].append(trace)
                    spent[name] += others.spent if others is not None else ()
    first = [found[0] for found in traces.values()]
    alike = all(agreement(first[0], other).verdict is not Verdict.DIFFERS for other in first[1:])
    same = alike if quantization in EXACT and dtype == "float32" else None
    sides = tuple(side_of(name, found, spent[name]) for name, found in traces.items())
    return Measured(sides, same, each, dtype, quantization)


def save(folder: Path, shape: Shape) -> None:
    """The model as a checkpoint: every rank reads its part of it."""
    with no_bars():
        random_llama(shape).save_pretrained(folder)
    plain_tokenizer(shape.vocabulary).save_pretrained(folder)


def side_of(name: str, traces: Sequence[Trace], spent: list[float]) -> Side:
    """`spent`: seconds of the machinery in each step of these."""
    header = traces[0].header
    rates, steps = [], list[Step]()
    for trace in traces:
        found = [record for record in trace.records if isinstance(record, Step)]
        rates.append(sum(len(step.token) for step in found) / (found[-1].ended - found[0].started))
        steps += [step for step in found if step.rows == ROWS and bool((step.kind == Kind.DECODE).all())]

    def median(values: list[float]) -> float:
        return 1e3 * statistics.median(values or [0.0])

    told = [step for step in steps if len(step.rank_bytes)]
    sharing = len(header.rank_devices) if header.sequence_parallel else 1
    item = 4 if header.model.dtype == "float32" else 2
    return Side(
        name=name,
        ranks=max(1, len(header.rank_devices)),
        meets=header.ranks_meet,
        tokens=statistics.median(rates),
        step=median([step.ended - step.started for step in steps]),
        forward=median([step.seconds["forward"] for step in steps]),
        machinery=median(spent),
        communicating=median([float(step.rank_communicating[0]) for step in told]),
        waiting=median([float(step.rank_waiting[0]) for step in told]),
        sent=int(statistics.median([int(step.rank_bytes.max()) for step in told] or [0])),
        weights=max(header.rank_weights or (header.model.weight_bytes,)),
        activations=header.bill.activations if header.bill is not None else 0,
        residuals=residual_bytes(header.most_tokens, header.model.hidden, item, sharing),
    )
