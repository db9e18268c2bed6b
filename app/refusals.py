"""Why the head of the queue did not join a step, in a sentence, and what would help. No Qt in here."""

from dataclasses import dataclass

from app.language import tr, trn
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
            why = tr("mode {mode} runs one request at a time", mode=config.mode)
            remedy = tr("choose a mode that batches, or wait for the end")
        case Refusal.NO_SLOT:
            why = trn("the one slot is taken", "all {count:,} slots are taken", config.slots)
            remedy = tr("raise Batch size") if config.mode in GATHERED else tr("raise Running")
        case Refusal.NO_BLOCKS if not config.paged:
            why = tr("one more strip as wide as the longest does not fit in the KV memory")
            remedy = tr("raise KV memory, or choose a paged mode, which reserves nothing")
        case Refusal.NO_BLOCKS:
            counts = {"free": step.free_blocks, "all": header.blocks, "cached": step.cached_blocks}
            why = tr("its prompt finds too few KV blocks ({free:,} of {all:,} blocks are free)", **counts)
            if step.cached_blocks:
                why = tr(
                    "its prompt finds too few KV blocks ({free:,} of {all:,} blocks are free and {cached:,} kept for a "
                    "prefix)",
                    **counts,
                )
            remedy = tr("raise KV memory, or wait until one ends")
        case Refusal.BUDGET:
            why, remedy = tr("the step's {tokens:,} tokens are spent", tokens=config.token_budget), tr("raise Budget")
        case Refusal.DECODE_TURN:
            why = tr("it is the decodes' turn, prompts are next")
            remedy = tr("nothing is amiss; in mode chunked both share a step")
        case Refusal.JOIN_TURN:
            why = tr("new requests join only after {steps:,} decode steps", steps=config.join_every)
            remedy = tr("set New join to every step")
        case Refusal.BATCH_FILLS:
            counts = {"waiting": step.waiting, "places": config.slots}
            if config.mode == "dynamic":
                why = tr(
                    "a batch starts when it is full or its first request has waited long enough: {waiting:,} wait for "
                    "{places:,} places",
                    **counts,
                )
            else:
                why = tr("a batch starts when it is full: {waiting:,} wait for {places:,} places", **counts)
            remedy = tr("send more, or lower Batch size")
        case Refusal.BATCH_RUNS:
            why = tr("a batch is running, and nobody joins until its longest ends")
            remedy = tr("in mode continuous it would join at once")
        case Refusal.PROMPT_RUNS:
            why = tr("another sample of its prompt is computing that prompt, whose blocks it will share")
            remedy = tr("it joins as soon as that is done")
        case Refusal.OTHER_ADAPTER:
            why = tr("requests of another adapter run, and adapters run one at a time")
            remedy = tr("let Adapters share steps")
        case Refusal.PACE:
            why = tr("with more in a step, gaps would be longer than the target")
            remedy = tr("raise Target ITL, or wait until one ends")
        case _:
            why = reason
    return RefusalWords(why, remedy)


def refusals(step: Step, header: Header | None) -> list[tuple[int, RefusalWords]]:
    """Each refused request with its sentence."""
    told = zip(step.refused.tolist(), step.refused_reason)
    return [(request, refusal_words(reason, step, header)) for request, reason in told]
