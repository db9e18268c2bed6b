"""What replaying steps with prompts buys: a small model under `chunked`, where most steps have some."""

from __future__ import annotations

from statistics import median

from engine.bench.gpu.decode import QWEN3, begun, free_device_memory, pool_bytes, random_qwen3, wrapped
from engine.bench.gpu.report import Bench, columns
from engine.bench.gpu.yardstick import decodes, workload
from engine.bench.subject import Case, Lengths, Shape, make_case
from engine.config.specs import EngineConfig

PROMPT = Lengths(100, 400)
MIXED = "budget 7d | tok/s 10,.0f | steps 6d | with prompts 12d | step ms 8.2f | host ms 8.2f | replayed 8.0%"


def mixed(bench: Bench) -> None:
    """Requests that come and go at token budgets of a few sizes, with graphs for such steps and without."""
    table = bench.table("Steps with prompts, replayed and launched kernel by kernel", (("", "10"), *columns(MIXED)))
    count, new = (2, 3) if bench.rehearsal else (192, 64)
    lengths = Lengths(6, 6) if bench.rehearsal else PROMPT
    for budget in (16,) if bench.rehearsal else (128, 512, 2048):
        for way, replays in (("replayed", True), ("eager", False)):
            if not bench.fits(1 if bench.rehearsal else 5, table, f"{way}, budget {budget:,}"):
                return
            model = wrapped(random_qwen3(bench), QWEN3)
            running, pool = min(64, budget), pool_bytes(bench)
            config = EngineConfig("chunked", running, budget, kv_memory=pool, mixed_graphs=replays)
            case = Case(make_case(count, Shape(vocabulary=model.card.vocabulary), lengths).prompts, (new,) * count)
            with begun(model, config) as engine:
                for _ in range(1 if bench.rehearsal else 2):  # the first to warm up
                    trace = engine.run(workload(case)).result()
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
