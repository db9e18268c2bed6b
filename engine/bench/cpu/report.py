"""The bench's figures, as numbers and as text."""

import json
from dataclasses import asdict, dataclass, field
from statistics import median

from engine.bench.cpu.noise import Noise
from engine.bench.cpu.workload_bound import WorkloadBound
from engine.trace.records import Machine


@dataclass(frozen=True, slots=True)
class Throughput:
    """One side of one case. `seconds` a round; `tokens` output tokens in each, over `prompts` prompts."""

    name: str
    settings: str
    prompts: int
    tokens: int
    seconds: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Output tokens a second, of the median round."""
        return self.tokens / median(self.seconds)


@dataclass(frozen=True, slots=True)
class CaseReport:
    """A case of `prompts` prompts: this engine first, then itself with static batches, then its peers; the least time
    that the workload can take here; and what the seconds of this engine's median round were spent on, where its steps
    were replayed."""

    prompts: int
    prompt_tokens: int
    output_tokens: int
    sides: tuple[Throughput, ...]
    bound: WorkloadBound
    spent: dict[str, float]

    @property
    def engine(self) -> Throughput:
        return self.sides[0]

    @property
    def share_of_bound(self) -> float:
        """Of the rate that the bound allows, what the median round of this engine reached."""
        return self.bound.seconds / median(self.engine.seconds)

    @property
    def static_is_times(self) -> float:
        """This engine's static batches against transformers' own, in output tokens a second."""
        ours, theirs = (side for side in self.sides if "static batch" in side.name)
        return ours.rate / theirs.rate


@dataclass(frozen=True, slots=True)
class StepReport:
    """A decode step of `batch` rows at a mean context. Seconds are medians; `bounds` has every way that was tried.

    `outside` is the share of the engine's step, from its start to the next one's, that is not the model's forward.
    """

    batch: int
    context: int
    engine: float
    forward: float
    outside: float
    bounds: dict[str, float]

    @property
    def bound(self) -> float:
        return min(self.bounds.values())

    @property
    def ratio(self) -> float:
        return self.engine / self.bound


@dataclass(frozen=True, slots=True)
class Report:
    """All that a run of the bench found. `scheduler` maps requests waiting to seconds a step."""

    model: str
    machine: Machine
    versions: dict[str, str]
    allocator: str
    rounds: int
    threads: int
    cases: tuple[CaseReport, ...]
    steps: tuple[StepReport, ...]
    scheduler: dict[int, float]
    noise: Noise
    seconds: float
    notes: tuple[str, ...] = field(default=())

    def json(self) -> str:
        """Every number, with the derived ones."""
        values = asdict(self)
        for case, found in zip(values["cases"], self.cases):
            case["static_is_times"], case["share_of_bound"] = found.static_is_times, found.share_of_bound
            for side, measured in zip(case["sides"], found.sides):
                side["tokens_per_second"] = measured.rate
                side["engine_is_times"] = found.engine.rate / measured.rate
        for step, timed in zip(values["steps"], self.steps):
            step["bound"], step["ratio"] = timed.bound, timed.ratio
        values["noise"]["busy"] = self.noise.busy
        return json.dumps(values, indent=1)

    def text(self) -> str:
        lines = [
            f"{self.model}",
            f"{self.machine.cpu}, {self.machine.cores} cores, {self.machine.memory / 2**30:.0f} GiB; "
            + ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            f"Allocator, for all alike: {self.allocator}.",
            f"All sides in turn in one process; medians of {_count(self.rounds, 'round')}.",
            self.noise.text(),
        ]
        for case in self.cases:
            lines += ["", *self._case(case)]
        lines += ["", *self._steps()]
        lines += ["", *self._scheduler()]
        lines += [*self.notes, f"The run took {self.seconds:.0f} s."]
        return "\n".join(lines)

    def _case(self, case: CaseReport) -> list[str]:
        lines = [
            f"{case.prompts} prompts, {case.prompt_tokens:,} tokens in, {case.output_tokens:,} out "
            "(greedy, end tokens ignored)",
            f"  {'':42} {'output tok/s':>12}   {'engine is':>9}   settings",
        ]
        for side in case.sides:
            few = f"; {side.prompts} of the prompts" if side.prompts != case.prompts else ""
            times = f"× {case.engine.rate / side.rate:.2f}" if side is not case.engine else ""
            lines.append(f"  {side.name:42} {side.rate:12,.0f}   {times:>9}   {side.settings}{few}")
        bound = case.bound
        lines.append(f"  {'the bound of the workload':42} {case.output_tokens / bound.seconds:12,.0f}   ")
        lines[-1] += f"{case.share_of_bound:9.0%}   products {bound.products:.2f} s, "
        lines[-1] += f"{bound.operations / bound.products / 1e9:,.0f} G operations a second; "
        lines[-1] += f"reading K and V {bound.attention:.2f} s, {bound.bytes_read / bound.attention / 1e9:.0f} GB/s"
        if case.spent:
            spent = ", ".join(f"{name} {seconds:.2f}" for name, seconds in case.spent.items())
            lines.append(f"    this engine's {sum(case.spent.values()):.2f} s: {spent}")
        lines.append(f"    its static batch is × {case.static_is_times:.2f} of transformers' static batch")
        return lines

    def _steps(self) -> list[str]:
        lines = ["A decode step, all rows decoding", f"  {'':42} {'ms':>12}   {'tok/s':>9}"]
        for step in self.steps:

            def line(name: str, seconds: float, batch: int = step.batch) -> str:
                return f"  {name:42} {seconds * 1e3:12.2f}   {batch / seconds:9,.0f}"

            lines.append(f"  batch {step.batch}, mean context {step.context}")
            lines += [line(f"  bare forward, {name}", seconds) for name, seconds in step.bounds.items()]
            lines.append(line("  this engine's whole step", step.engine))
            lines.append(
                f"    the step is × {step.ratio:.2f} of the bound (the fastest bare forward); "
                f"{step.outside:.1%} of it is outside the model's forward"
            )
        return lines

    def _scheduler(self) -> list[str]:
        return [
            "The scheduler alone, plan and commit of a decode step of 64 running: "
            + ", ".join(f"{1e3 * s:.2f} ms with {waiting:,} waiting" for waiting, s in self.scheduler.items())
        ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
