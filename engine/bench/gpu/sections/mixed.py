"""What launching steps with prompts costs, and replaying them buys: a small model under `chunked`, where most steps
have some."""

from __future__ import annotations

from statistics import median

from engine.bench.gpu.report import Bench, columns
from engine.bench.gpu.sections.decode import (
    QWEN3,
    begun,
    free_device_memory,
    pool_bytes,
    random_qwen3,
    tell_how,
    wrapped,
)
from engine.bench.gpu.sections.yardstick import decodes, workload
from engine.bench.subject import Case, Lengths, Shape, make_case
from engine.config.specs import EngineConfig
from engine.memory.rules import LAUNCHED

POOL = 1 << 30  # bytes
PROMPT = Lengths(100, 400)
MIXED = "budget 7d | tok/s 10,.0f | steps 6d | with prompts 12d | step ms 8.2f | host ms 8.2f | replayed 8.0%"


def launched(bench: Bench) -> None:
    """What the host takes to launch a layer of a step with prompts, which `engine.memory.rules` guesses: up to how many
    tokens such steps are captured hangs on it."""
    table = bench.table(
        "A step with prompts, launched kernel by kernel",
        columns("tokens 7d | steps 6d | launched ms 11.2f | a layer, µs 11.1f | device ms 9.2f"),
    )
    count, new, budget = (2, 3, 16) if bench.rehearsal else (64, 4, 64)
    model = wrapped(random_qwen3(bench), QWEN3)
    config = EngineConfig("chunked", 16, budget, kv_memory=pool_bytes(bench) or POOL, cuda_graphs=False)
    case = Case(make_case(count, Shape(vocabulary=model.card.vocabulary), Lengths(6, 40)).prompts, (new,) * count)
    with begun(model, config) as engine:
        tell_how(table, engine)
        for _ in range(1 if bench.rehearsal else 2):  # the first to warm up
            trace = engine.run(workload(case)).result()
    steps = [step for step in trace.steps if step.rows and not decodes(step)]
    tokens, host = (median(values) for values in zip(*((step.count.sum(), step.seconds["forward"]) for step in steps)))
    layer = host / model.card.layers
    table.add(int(tokens), len(steps), 1e3 * host, 1e6 * layer, 1e3 * median(step.device for step in steps))
    table.say(f"engine/memory/rules.py has LAUNCHED = {1e6 * LAUNCHED:.0f}e-6, and this host says {1e6 * layer:.0f}e-6")
    del model, engine
    free_device_memory()


def mixed(bench: Bench) -> None:
    """Requests that come and go at token budgets of a few sizes, with graphs for such steps and without."""
    table = bench.table("Steps with prompts, replayed and launched kernel by kernel", (("", "10"), *columns(MIXED)))
    count, new = (2, 3) if bench.rehearsal else (64, 32)
    lengths = Lengths(6, 6) if bench.rehearsal else PROMPT
    budgets = (16,) if bench.rehearsal else (512, 128)
    pool = pool_bytes(bench)
    ways = [
        (way, EngineConfig("chunked", min(64, budget), budget, kv_memory=pool, mixed_graphs=replays))
        for budget in budgets
        for way, replays in (("replayed", True), ("eager", False))
    ]
    model = wrapped(random_qwen3(bench), QWEN3)
    case = Case(make_case(count, Shape(vocabulary=model.card.vocabulary), lengths).prompts, (new,) * count)
    with begun(model, ways[0][1]) as engine:
        tell_how(table, engine)
        for way, config in ways:
            budget = config.token_budget
            if not bench.fits(1 if bench.rehearsal else 3, table, f"{way}, budget {budget:,}"):
                break
            for _ in range(1 if bench.rehearsal else 2):  # the first to warm up
                trace = engine.run(workload(case), config).result()
            steps = [step for step in trace.steps if step.rows and not decodes(step)]
            whole = 1e3 * median(step.ended - step.started for step in steps)
            on_host = 1e3 * median(
                sum(step.seconds[name] for name in ("prepare", "forward", "sample")) for step in steps
            )
            share = sum(step.graph > 0 for step in steps) / len(steps)
            rate = case.output_tokens / trace.duration
            table.add(way, budget, rate, len(trace.steps), len(steps), whole, on_host, share)
    del model, engine
    free_device_memory()
