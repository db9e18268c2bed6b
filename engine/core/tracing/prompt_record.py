"""Builds the records of what requests hear of their prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.scheduler.request import Request
from engine.scheduler.scheduler import NO_NUMBER, Scheduler
from engine.trace.records import FinishReason, PromptScored, freeze

if TYPE_CHECKING:
    from engine.runner.launched_step import LaunchedStep


def tell_prompts(
    launched: LaunchedStep, scheduler: Scheduler, detokenizers: DetokenizerFactory, now: float
) -> Iterator[PromptScored]:
    """Takes what a step that was read says of prompts; the records of those that are told of whole by now. To be called
    before the step is committed, which may end their requests."""
    launched.tell_scores()
    for request in dict.fromkeys(row.branch.request for row, _ in launched.plan.scored):
        if request.unscored or request.finished or request.scores is None:
            continue
        if np.isnan(request.scores.logprobs).any():
            scheduler.finish(request, FinishReason.ERROR, NO_NUMBER)
        else:
            yield prompt_record(request, detokenizers, now)


def prompt_record(request: Request, detokenizers: DetokenizerFactory, now: float) -> PromptScored:
    """The record of a prompt that was told of whole."""
    scores, said = request.scores, detokenizers.plain()
    assert scores is not None
    parts = list(map(said.push, scores.tokens))
    parts[-1] += said.flush()
    return PromptScored(
        now,
        request.id,
        freeze(np.array(scores.tokens, np.int32)),
        freeze(scores.logprobs),
        scores.asked,
        freeze(scores.alternatives.reshape(-1)),
        freeze(scores.alternative_logprobs.reshape(-1)),
        "".join(parts),
        freeze(np.cumsum([len(part) for part in parts], dtype=np.int32)),
    )
