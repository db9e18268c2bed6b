"""A request that began at another engine: its samples as they were there, as if preempted by recompute."""

from collections.abc import Iterator, Sequence

from engine.config.checks import check
from engine.config.specs import PAGED_MODES, EngineConfig
from engine.scheduler.request import Life, Request
from engine.trace.records import Ended, FinishReason


def resume(request: Request, said: Sequence[Sequence[int] | None], config: EngineConfig, vocabulary: int) -> None:
    """Gives a request's branches, which are new, the tokens that they had; those that are over by them, or were (None),
    are finished. What follows is what would have followed there: texts held back, stop strings, penalties, grammars and
    limits are functions of the tokens, and noise of seed, branch and position. Raises InvalidInput."""
    shown = f"{len(said)} samples"
    modes = f"mode {config.mode!r} begins every prompt at its beginning; use one of {', '.join(PAGED_MODES)}"
    check(config.paged, "said", shown, modes)
    check(request.params.beam_width == 1, "said", shown, "a beam search cannot go on at another engine; submit it anew")
    check(len(said) == len(request.branches), "said", shown, f"the request has {len(request.branches)}")
    fixed = "the samples go on only with the seed that they were drawn with; give it"
    check(request.params.seed is not None or request.params.temperature == 0, "said", shown, fixed)
    for branch, tokens in zip(request.branches, said, strict=True):
        if tokens is None:
            branch.life, branch.reason = Life.FINISHED, FinishReason.CANCELLED
            continue
        for at, token in enumerate(tokens):
            known = isinstance(token, int) and not isinstance(token, bool) and 0 <= token < vocabulary
            check(known, "said", token, f"must be token ids in [0, {vocabulary})")
            _, reason = branch.output.push(token)
            branch.tokens.append(token)
            if reason is not None:
                check(at == len(tokens) - 1, "said", shown, f"sample {branch.index} is over before its last token")
                branch.life, branch.reason, branch.error = Life.FINISHED, reason, branch.output.fault
        if tokens and not branch.finished:
            branch.life, branch.reached = Life.PREEMPTED, len(branch.tokens) - 1


def ends(request: Request, now: float) -> Iterator[Ended]:
    """The records of its samples that are over before it begins. All their text was told where they were."""
    for branch in request.branches:
        if branch.reason is not None:
            yield Ended(now, request.id, branch.reason, "", branch.error, branch.index)
