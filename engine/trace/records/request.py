"""A request comes in, and its branches end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from engine.config.sampling_params import SamplingParams
from engine.config.submission import Message
from engine.trace.column import Array
from engine.trace.records.arrays import empty


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Submitted:
    """A request came in. `text` is the prompt as the model sees it; `messages` is set when it was a chat. `token_text`:
    what each of its tokens says, special ones their names, where it asked what its answer attends to."""

    time: float
    request: int
    text: str
    token_ids: Array
    params: SamplingParams
    messages: tuple[Message, ...] = ()
    label: str = ""
    token_text: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptScored:
    """How likely the model found a prompt whose request asked for it, once all of it was computed.

    `token` `[tokens]` are the prompt's, and `text_end` `[tokens]` says where each one's part of `text` ends. Of all but
    the first: `logprob` `[tokens - 1]` (natural log, given those before it), and the likeliest `alternatives` there,
    `alt_token` and `alt_logprob` `[(tokens - 1) * alternatives]`.
    """

    time: float
    request: int
    token: Array
    logprob: Array
    alternatives: int
    alt_token: Array
    alt_logprob: Array
    text: str
    text_end: Array


@dataclass(frozen=True, slots=True)
class Ended:
    """A branch is over; a request is when each of its `params.branches` branches is.

    `text` is what was still held back (the tail of a cut character, or a started stop string); `token`, `logprob` and
    `text_end` are the tokens of a batch that would have delivered them later, or those of a beam search that were not
    certain before. What follows the last `text_end` belongs to the branch's last token. `score`: a beam search's result
    has one, the sum of its log-probabilities over its length to the power of the length penalty. `prompt_tokens`:
    how many a server counted that was watched from outside, told with the first branch; 0 where the ids are known.
    """

    time: float
    request: int
    reason: FinishReason
    text: str = ""
    error: str = ""
    branch: int = 0
    token: Array = empty(np.int32)
    logprob: Array = empty(np.float32)
    text_end: Array = empty(np.int32)
    score: float | None = None
    prompt_tokens: int = 0
