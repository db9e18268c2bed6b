"""Why the head of the queue did not join a step, in a sentence, and what would help. No Qt in here."""

from dataclasses import dataclass

from engine.trace import Header, Refusal, Step

GATHERED = ("static", "dynamic")  # their Running is called Batch size


@dataclass(frozen=True, slots=True)
class RefusalWords:
    """`why` it did not join; `remedy` is what would help, or when it will."""

    why: str
    remedy: str


def refusal_words(reason: str, step: Step, header: Header | None) -> RefusalWords:
    """The sentence for a reason as it is in the record; a reason that is not known stands for itself."""
    if header is None:
        return RefusalWords(reason, "")
    config = header.config
    remedy = ""
    match reason:
        case Refusal.NO_SLOT if config.mode in ("recompute", "sequential"):
            why = f"mode {config.mode} runs one request at a time"
            remedy = "choose a mode that batches, or wait for the end"
        case Refusal.NO_SLOT:
            why = f"all {config.slots:,} slots are taken" if config.slots > 1 else "the one slot is taken"
            remedy = "raise Batch size" if config.mode in GATHERED else "raise Running"
        case Refusal.NO_BLOCKS if not config.paged:
            why = "one more strip as wide as the longest does not fit in the KV memory"
            remedy = "raise KV memory, or choose a paged mode, which reserves nothing"
        case Refusal.NO_BLOCKS:
            cached = f" and {step.cached_blocks:,} kept for a prefix" if step.cached_blocks else ""
            free = f"{step.free_blocks:,} of {header.blocks:,} blocks are free{cached}"
            why, remedy = f"its prompt finds too few KV blocks ({free})", "raise KV memory, or wait until one ends"
        case Refusal.BUDGET:
            why, remedy = f"the step's {config.token_budget:,} tokens are spent", "raise Budget"
        case Refusal.DECODE_TURN:
            why = "it is the decodes' turn, prompts are next"
            remedy = "nothing is amiss; in mode chunked both share a step"
        case Refusal.JOIN_TURN:
            why = f"new requests join only after {config.join_every:,} decode steps"
            remedy = "set New join to every step"
        case Refusal.BATCH_FILLS:
            waits = " or its first request has waited long enough" if config.mode == "dynamic" else ""
            why = f"a batch starts when it is full{waits}: {step.waiting:,} wait for {config.slots:,} places"
            remedy = "send more, or lower Batch size"
        case Refusal.BATCH_RUNS:
            why = "a batch is running, and nobody joins until its longest ends"
            remedy = "in mode continuous it would join at once"
        case Refusal.PROMPT_RUNS:
            why = "another sample of its prompt is computing that prompt, whose blocks it will share"
            remedy = "it joins as soon as that is done"
        case _:
            why = reason
    return RefusalWords(why, remedy)


def refusals(step: Step, header: Header | None) -> list[tuple[int, RefusalWords]]:
    """Each refused request with its sentence."""
    told = zip(step.refused.tolist(), step.refused_reason)
    return [(request, refusal_words(reason, step, header)) for request, reason in told]
