"""transformers' `generate_batch` on the GPU, at the settings that a short trial found best, beside this engine.

Both get the same requests of the yardstick, each with as much of its new tokens as the peer gives in the time there is,
since it may be slow. Where no flash attention is installed it gets `engine.bench.flash_attention`, which it would be
many times slower without.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from transformers import GenerationConfig, PreTrainedModel
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from engine.bench import flash_attention
from engine.bench.generate_batch import seconds_of, without_flash
from engine.bench.gpu.report import Bench
from engine.bench.gpu.sections.decode import QWEN3, begun, free_device_memory, random_qwen3, tell_how, wrapped
from engine.bench.gpu.sections.yardstick import TEMPERATURE, case_of, settings, workload
from engine.bench.subject import Case

GOAL = 3.0
TRIAL, TRIAL_TOKENS = 16, 48  # requests, and the most new tokens of each
PARTS = (1, 2, 4, 8, 16, 32)  # of the comparison's new tokens: as many as there is time for
SLOWER = 3.0  # times a step of all requests is taken to last as long as one of the trial's
OURS = 12.0  # seconds that this engine's load and runs take
SETTINGS: tuple[dict[str, Any], ...] = (
    {},  # what transformers chooses
    {"page_size": 256, "max_batch_tokens": 8192},
    {"page_size": 256, "max_batch_tokens": 2048, "use_cuda_graph": True, "use_async_batching": True},
)


@dataclass
class GenerateBatch:
    """`generate_batch`, its warm-up off the clock."""

    module: PreTrainedModel
    given: dict[str, Any]
    attention: list[str] = field(default_factory=list)  # that ran

    @property
    def settings(self) -> str:
        """Its attention among them, which transformers chooses by what is installed."""
        given = [f"{name} {value}" for name, value in self.given.items()] or ["its own choice of settings"]
        return ", ".join([*given, *(f"attention {name}" for name in self.attention[-1:])])

    def seconds(self, case: Case, patience: float, rounds: int = 2) -> float:
        """The least of two rounds, of which the first makes the graphs of steps with prompts. See `seconds_of`."""
        most, drawn = max(case.new_tokens), {"temperature": TEMPERATURE, "top_k": 0, "top_p": 1.0}
        sampling = GenerationConfig(max_new_tokens=most, do_sample=True, **drawn, eos_token_id=None, pad_token_id=0)
        return seconds_of(self.module, case, sampling, self.given, patience, self.attention.append, rounds, timeout=5)


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
    chosen, step = fastest(bench, module, trial, table.say)
    part, divisor, theirs = compared(bench, chosen, case, SLOWER * step, table.say)
    table.add(
        len(part), part.output_tokens, theirs, part.output_tokens / theirs, None, f"generate_batch: {chosen.settings}"
    )
    attention = chosen.attention[-1]
    del module, chosen
    free_device_memory()
    model = wrapped(random_qwen3(bench), QWEN3)
    with begun(model, settings(bench)) as engine:
        tell_how(table, engine)
        ours = min(engine.run(workload(part)).result().duration for _ in range(2))
    table.add(len(part), part.output_tokens, ours, part.output_tokens / ours, theirs / ours, "this engine")
    if divisor > 1:
        table.say(f"both with 1/{divisor} of each request's new tokens: of all the peer takes too long")
    what = f"on {len(part)} requests with 1/{divisor} of their new tokens"
    bench.goal(f"of generate_batch's tokens a second ({attention}), {what}", GOAL, theirs / ours, "×")
    del model, engine
    free_device_memory()


def compared(bench: Bench, chosen: GenerateBatch, case: Case, step: float, say: Any) -> tuple[Case, int, float]:
    """As much of the case as the peer ended in time, the part of the new tokens that this is, and its seconds. `step`
    seconds are what one of its steps is taken to last."""
    for divisor in PARTS:
        part = Case(case.prompts, tuple(max(1, new // divisor) for new in case.new_tokens))
        room = bench.left - OURS
        if 2 * step * max(part.new_tokens) > room and divisor != PARTS[-1]:
            continue
        try:
            return part, divisor, chosen.seconds(part, max(1.0, 0.5 * room))
        except TimeoutError as error:
            if divisor == PARTS[-1] or bench.left < 2 * OURS:
                raise
            say(f"with 1/{divisor} of the new tokens: {error}")
        finally:
            free_device_memory()
    raise AssertionError("the last part is tried whatever it takes")


def attentions(module: PreTrainedModel) -> Iterator[dict[str, Any]]:
    """Settings of the attentions to be tried, one after another while none has run: the model has it by then."""
    if not (is_flash_attn_2_available() or is_flash_attn_3_available()):
        flash_attention.give(module)
    yield {}
    yield without_flash(module)


def fastest(bench: Bench, module: PreTrainedModel, trial: Case, say: Any) -> tuple[GenerateBatch, float]:
    """The settings that ran the trial in the least time, and the seconds of one of its steps."""
    best: tuple[float, GenerateBatch] | None = None
    last = ""
    for attention in attentions(module):
        for given in SETTINGS[:1] if bench.rehearsal else SETTINGS:
            peer = GenerateBatch(module, (small(given) if bench.rehearsal else given) | attention)
            if best is not None and bench.left < 0.7 * bench.limit:
                break
            try:
                seconds = peer.seconds(trial, 20)
            except Exception as error:  # such settings may not run on this card
                last = traceback.format_exc()
                say(f"generate_batch, {peer.settings}: {type(error).__name__}: {str(error)[:120]}")
                continue
            finally:
                free_device_memory()
            say(f"trial, {peer.settings}: {trial.output_tokens / seconds:,.0f} tok/s")
            if best is None or seconds < best[0]:
                best = seconds, peer
        if best is not None:
            return best[1], best[0] / max(trial.new_tokens)
    raise RuntimeError(f"generate_batch ran with no settings; the last said:\n{last}")


def small(given: dict[str, Any]) -> dict[str, Any]:
    return given | {"page_size": 16, "max_batch_tokens": 32, "num_blocks": 16}
