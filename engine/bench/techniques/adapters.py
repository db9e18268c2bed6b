"""Adapters: requests of four voices in one batch beside one voice at a time, and what they cost a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from transformers import AutoConfig

from engine.bench.cpu.quantized import SHAPE, save_subject
from engine.bench.random_adapters import save_adapter
from engine.bench.techniques.measured import Measured
from engine.checkpoints.adapters import EMBEDDED_ADAPTERS
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.core.engine import Engine
from engine.trace.measures import metrics
from engine.trace.records import Kind
from engine.workloads.workload import Workload

ROWS, TOKENS, RANK = 16, 64, 16
GAIN, COST = 1.3, 1.25  # tokens a second, and the time of a step
GREEDY = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True)


def measure(rounds: int, threads: int | None) -> Iterator[Measured]:
    """A few requests in each of four voices, one voice at a time and together, of the demo model and of a larger random
    one; then a decode step of as many rows through none, one and all of them, beside the model that was loaded without
    any."""
    with TemporaryDirectory() as folder:
        for title, spec in (("demo, float32", ModelSpec("demo", adapters=EMBEDDED_ADAPTERS)), _random(Path(folder))):
            names = "", *spec.adapter_names
            config, plain = EngineConfig(max_running=ROWS), ModelSpec(spec.source, dtype=spec.dtype)
            with Engine(plain, config, threads=threads) as bare, Engine(spec, config, threads=threads) as adapted:
                yield from _together(adapted, title, names, rounds)
                for through, count in (("none", 1), ("one", 2), ("four voices", len(names))):
                    chosen = names[1:count] if count == 2 else names[:count]
                    found = [(_step(bare, ("",)), _step(adapted, chosen)) for _ in range(rounds)]
                    without, with_it = (1e3 * median(times) for times in zip(*found, strict=True))
                    ratio = median(after / before for before, after in found)
                    what = f"ms a decode step of {ROWS} rows, through {through}"
                    yield Measured("adapters", title, what, without, with_it, ratio, COST, at_most=True)


def _random(folder: Path) -> tuple[str, ModelSpec]:
    """A larger model, bound by its weights' bytes, with as many random adapters of its linear layers."""
    model = save_subject(folder / "model", SHAPE)
    config = AutoConfig.from_pretrained(model)
    hidden, wide, kv = config.hidden_size, config.intermediate_size, config.num_key_value_heads * config.head_dim
    attention = {"q_proj": (hidden, hidden), "k_proj": (kv, hidden), "v_proj": (kv, hidden), "o_proj": (hidden, hidden)}
    mlp = {"gate_proj": (wide, hidden), "up_proj": (wide, hidden), "down_proj": (hidden, wide)}
    sizes = {
        f"model.layers.{layer}.{part}.{name}": size
        for layer in range(config.num_hidden_layers)
        for part, layers in (("self_attn", attention), ("mlp", mlp))
        for name, size in layers.items()
    }
    adapters = [save_adapter(folder / name, sizes, RANK, i, 0.01) for i, name in enumerate(EMBEDDED_ADAPTERS)]
    return "random, 104 M, bfloat16", ModelSpec(str(model), dtype="bfloat16", adapters=tuple(map(str, adapters)))


def _together(engine: Engine, title: str, names: Sequence[str], rounds: int) -> Iterator[Measured]:
    apart, mixed = (EngineConfig(max_running=ROWS, mixed_adapters=mixed) for mixed in (False, True))
    found = [
        [metrics.measure(engine.run(_asked(names), config).result()) for config in (apart, mixed)]
        for _ in range(rounds + 1)
    ][1:]  # the first warms up
    of = f"{ROWS // len(names)} requests in each of {len(names)} voices, {title}"
    sides = [[one.output_throughput for one in each] for each in found]
    without, with_it = (median(side) for side in zip(*sides, strict=True))
    ratio = median(together / one_by_one for one_by_one, together in sides)
    yield Measured("adapters share steps", of, "output tok/s", without, with_it, ratio, GAIN)
    waits = [[1e3 * one.ttft.p95 for one in each] for each in found]
    without, with_it = (median(side) for side in zip(*waits, strict=True))
    ratio = median(together / one_by_one for one_by_one, together in waits)
    what, goal = "ms to the first token, p95", round(1 / GAIN, 2)
    yield Measured("adapters share steps", of, what, without, with_it, ratio, goal, at_most=True)


def _asked(through: Sequence[str]) -> Workload:
    """As many requests as there are slots, all at once."""
    return Workload.at_once("rows", [[5 + row] * 24 for row in range(ROWS)], GREEDY).through(through)


def _step(engine: Engine, through: Sequence[str]) -> float:
    """Seconds of a step in which every row decodes: the lower quartile, which leaves out what else the machine does."""
    trace = engine.run(_asked(through)).result()
    steps = [step for step in trace.steps if step.rows == ROWS and bool((step.kind == Kind.DECODE).all())]
    return quantiles((step.seconds["forward"] for step in steps), n=4)[0]
