"""Generated lanes: one workload as each batching mode runs it, with every time invented. No model ran.

They show a timeline what it must draw: rows held until the longest ends, padding, waits behind others' prompts, work
done again, rows past a stop.
"""

import random

from app.bench.synthetic import MadeUpRun, header, story
from engine import SamplingParams
from engine.scheduler import StepPlan
from engine.trace import FinishReason, Kind, Record

MODES = ("recompute", "static", "continuous", "chunked")
STEP, TOKEN, PROMPT_TOKEN = 0.012, 0.0004, 0.00015  # seconds: of each step, of each decoding row, of each prompt token


def lane_trace(
    mode: str,
    *,
    slots: int = 12,
    requests: int = 28,
    seed: int = 0,
    prompt: tuple[int, int] = (40, 600),
    output: tuple[int, int] = (20, 220),
    budget: int = 256,
    lag: int = 0,
) -> list[Record]:
    """The records of `requests` that all come in at once. `lag`: steps launched ahead, whose rows are computed past a
    stop. Raises InvalidInput for a mode that there is not."""
    rng = random.Random(seed)
    budget = max(budget, slots) if mode == "chunked" else 65_536
    run = MadeUpRun(header(slots, max(4096, 128 * slots), depth=lag, mode=mode, token_budget=budget), _cost)
    for _ in range(requests):
        tokens, length = rng.randint(*prompt), rng.randint(*output)
        asked, words = story(rng, length)
        params = SamplingParams(max_tokens=length, temperature=0.0)
        run.submit(asked, tokens, words, FinishReason.LENGTH, params)
    while run.step():
        pass
    return run.records


def _cost(plan: StepPlan, tokens: int) -> float:
    prompts = sum(r.count + r.padding for r in plan.rows if r.kind is Kind.PREFILL or r.count > 1)
    return STEP + TOKEN * len(plan.rows) + PROMPT_TOKEN * prompts
