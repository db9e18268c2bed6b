"""Why the head of the queue did not join a step, in a sentence, and what would help. No Qt in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.trace import Header, Refusal, Step

GATHERED = ("static", "dynamic")  # their Running is called Batch size


@dataclass(frozen=True, slots=True)
class RefusalWords:
    """`why` it did not join; `remedy` is what would help, or when it will."""

    why: str
    remedy: str


def _no_slot(step: Step, header: Header) -> RefusalWords:
    slots = header.config.slots
    if header.config.mode in ("recompute", "sequential"):
        return RefusalWords(
            f"mode {header.config.mode} runs one request at a time", "choose a mode that batches, or wait for the end"
        )
    size = "Batch size" if header.config.mode in GATHERED else "Running"
    return RefusalWords(f"all {slots:,} slots are taken" if slots > 1 else "the one slot is taken", f"raise {size}")


def _no_blocks(step: Step, header: Header) -> RefusalWords:
    if not header.config.paged:
        return RefusalWords(
            "one more strip as wide as the longest does not fit in the KV memory",
            "raise KV memory, or choose a paged mode, which reserves nothing",
        )
    free = f"{step.free_blocks:,} of {header.blocks:,} blocks are free"
    cached = f" and {step.cached_blocks:,} kept for a prefix" if step.cached_blocks else ""
    return RefusalWords(
        f"its prompt finds too few KV blocks ({free}{cached})", "raise KV memory, or wait until one ends"
    )


def _budget(step: Step, header: Header) -> RefusalWords:
    return RefusalWords(f"the step's {header.config.token_budget:,} tokens are spent", "raise Budget")


def _decode_turn(step: Step, header: Header) -> RefusalWords:
    return RefusalWords(
        "it is the decodes' turn, prompts are next", "nothing is amiss; in mode chunked both share a step"
    )


def _join_turn(step: Step, header: Header) -> RefusalWords:
    every = header.config.join_every
    return RefusalWords(f"new requests join only after {every:,} decode steps", "set New join to every step")


def _batch_fills(step: Step, header: Header) -> RefusalWords:
    waits = "or its first request has waited long enough" if header.config.mode == "dynamic" else ""
    until = " ".join(("a batch starts when it is full", waits)).strip()
    return RefusalWords(
        f"{until}: {step.waiting:,} wait for {header.config.slots:,} places", "send more, or lower Batch size"
    )


def _batch_runs(step: Step, header: Header) -> RefusalWords:
    return RefusalWords(
        "a batch is running, and nobody joins until its longest ends", "in mode continuous it would join at once"
    )


def _prompt_runs(step: Step, header: Header) -> RefusalWords:
    return RefusalWords(
        "another sample of its prompt is computing that prompt, whose blocks it will share",
        "it joins as soon as that is done",
    )


SENTENCES: dict[Refusal, Callable[[Step, Header], RefusalWords]] = {
    Refusal.NO_SLOT: _no_slot,
    Refusal.NO_BLOCKS: _no_blocks,
    Refusal.BUDGET: _budget,
    Refusal.DECODE_TURN: _decode_turn,
    Refusal.JOIN_TURN: _join_turn,
    Refusal.BATCH_FILLS: _batch_fills,
    Refusal.BATCH_RUNS: _batch_runs,
    Refusal.PROMPT_RUNS: _prompt_runs,
}


def refusal_words(reason: str, step: Step, header: Header | None) -> RefusalWords:
    """The sentence for a reason as it is in the record; a reason that is not known stands for itself."""
    if header is None or reason not in set(Refusal):
        return RefusalWords(reason, "")
    return SENTENCES[Refusal(reason)](step, header)


def refusals(step: Step, header: Header | None) -> list[tuple[int, RefusalWords]]:
    """Each refused request with its sentence."""
    return [
        (request, refusal_words(reason, step, header))
        for request, reason in zip(step.refused.tolist(), step.refused_reason)
    ]
