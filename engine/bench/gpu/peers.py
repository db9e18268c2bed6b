"""transformers' `generate_batch` on the GPU, at the settings that a short trial found best, beside this engine.

Both get the same requests of the yardstick, each with as much of its new tokens as the peer gives in the time there is,
since it may be slow.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import Any

from transformers import GenerationConfig, PreTrainedModel

from engine.bench.generate_batch import seconds_of, without_flash
from engine.bench.gpu.decode import QWEN3, begun, free_device_memory, random_qwen3, tell_how, wrapped
from engine.bench.gpu.report import Bench
from engine.bench.gpu.yardstick import TEMPERATURE, case_of, settings, workload
from engine.bench.subject import Case

GOAL = 3.0
TRIAL, TRIAL_TOKENS = 16, 48  # requests, and the most new tokens of each
COUNT = 64  # requests of the comparison
PARTS = (1, 2, 4, 8, 16, 32)  # of their new tokens: as many as there is time for, as the longest takes the time
SLOWER = 1.5  # times a step of the comparison's is taken to last as long as one of the trial's
OURS = 9.0  # seconds that this engine's load and runs take
SETTINGS: tuple[dict[str, Any], ...] = (
    {},  # what transformers chooses
    {"page_size": 256, "max_batch_tokens": 2048, "use_cuda_graph": True, "use_async_batching": True},
    {"page_size": 256, "max_batch_tokens": 8192},
)


@dataclass
class GenerateBatch:
    """`generate_batch`, its warm-up off the clock. It takes a flash attention where one is installed."""

    module: PreTrainedModel
    given: dict[str, Any]
    attention: list[str] = field(default_factory=list)  # that ran

    @property
    def settings(self) -> str:
        """Its attention among them, which transformers chooses by what is installed."""
        given = [f"{name} {value}" for name, value in self.given.items()] or ["its own choice of settings"]
        return ", ".join([*given, *(f"attention {name}" for name in self.attention[-1:])])

    def seconds(self, case: Case, patience: float) -> float:
        """See `seconds_of`."""
        most, drawn = max(case.new_tokens), {"temperature": TEMPERATURE, "top_k": 0, "top_p": 1.0}
        sampling = GenerationConfig(max_new_tokens=most, do_sample=True, **drawn, eos_token_id=None, pad_token_id=0)
        return seconds_of(self.module, case, sampling, self.given, patience, self.attention.append, timeout=5)


def peers(bench: Bench) -> None:
    """This engine's tokens a second against `generate_batch`'s."""
    case = case_of(bench)
    table = bench.table(
        "Yardstick beside transformers' generate_batch",
        (("requests", "8d"), ("out", "8,d"), ("seconds", "8.2f"), ("tok/s", "9,.0f"), ("× slower", "8.2f"), ("", "24")),
    )
    module = random_qwen3(bench)
    trial = case.first(2 if bench.rehearsal else TRIAL)
    trial = Case(trial.prompts, tuple(min(new, TRIAL_TOKENS) for new in trial.new_tokens))
    chosen, rate = fastest(bench, module, trial, table.say)
    step, room = SLOWER * trial.output_tokens / rate / max(trial.new_tokens), 0.6 * (bench.left - OURS)
    part, count = case.first(COUNT), min(len(case), COUNT)
    divisor = next((n for n in PARTS if step * max(part.new_tokens) / n < room), PARTS[-1])
    part = Case(part.prompts, tuple(max(1, new // divisor) for new in part.new_tokens))
    theirs = chosen.seconds(part, max(1.0, bench.left - OURS))
    rate = part.output_tokens / theirs
    table.add(count, part.output_tokens, theirs, rate, None, f"generate_batch: {chosen.settings}")
    attention = chosen.attention[-1]
    del module, chosen
    free_device_memory()
    model = wrapped(random_qwen3(bench), QWEN3)
    with begun(model, settings(bench)) as engine:
        tell_how(table, engine)
        ours = min(engine.run(workload(part)).result().duration for _ in range(2))
    table.add(count, part.output_tokens, ours, part.output_tokens / ours, theirs / ours, "this engine")
    if count < len(case) or divisor > 1:
        what = f"the first {count} of the yardstick's {len(case)} requests, each with 1/{divisor} of its new tokens"
        table.say(f"both on {what}: of all the peer takes too long")
    what = f"on {count} requests with 1/{divisor} of their new tokens"
    bench.goal(f"of generate_batch's tokens a second ({attention}), {what}", GOAL, theirs / ours, "×")
    del model, engine
    free_device_memory()


def fastest(bench: Bench, module: PreTrainedModel, trial: Case, say: Any) -> tuple[GenerateBatch, float]:
    """The settings that ran the trial in the least time, and their tokens a second; each one's first run warms up."""
    best: tuple[float, GenerateBatch] | None = None
    last = ""
    without: dict[str, Any] = {}
    for given in SETTINGS[:1] if bench.rehearsal else SETTINGS:
        peer = GenerateBatch(module, (small(given) if bench.rehearsal else given) | without)
        if best is not None and bench.left < 0.6 * bench.limit:
            break
        try:
            for _ in range(1 if bench.rehearsal else 2):
                seconds = peer.seconds(trial, 20)
        except Exception as error:  # such settings may not run on this card
            last = traceback.format_exc()
            say(f"generate_batch, {peer.settings}: {type(error).__name__}: {str(error)[:120]}")
            without = without_flash(module)  # which may be why
            continue
        finally:
            free_device_memory()
        say(f"trial, {peer.settings}: {trial.output_tokens / seconds:,.0f} tok/s")
        if best is None or seconds < best[0]:
            best = seconds, peer
    if best is None:
        raise RuntimeError(f"generate_batch ran with no settings; the last said:\n{last}")
    return best[1], trial.output_tokens / best[0]


def small(given: dict[str, Any]) -> dict[str, Any]:
    return given | {"page_size": 16, "max_batch_tokens": 32, "num_blocks": 16}
