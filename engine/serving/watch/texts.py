"""Records without what was said in them: for those who may watch the engine, and not read along."""

from dataclasses import replace
from typing import Any

import numpy as np

from engine.config.sampling_params import SamplingParams
from engine.trace.column import Array
from engine.trace.records import Ended, PromptScored, Record, Step, Submitted, freeze

TOKENS = ("token", "alt_token", "draft_token", "rather_token", "beam_token")  # of a step: they are texts in numbers
TEXTS = ("alt_text", "draft_text", "rather_text", "beam_text")
UNTOLD = "it failed; why is told to those who may read texts"  # as the words may quote what was sent


def without_texts(record: Record) -> Record:
    """The record with every count, time and block as it was; texts are empty, token ids 0."""
    match record:
        case Step():
            columns: dict[str, Any] = {name: _zeros(getattr(record, name)) for name in TOKENS}
            columns |= {name: ("",) * len(getattr(record, name)) for name in TEXTS}
            return replace(record, text="", text_end=_zeros(record.text_end), **columns)
        case Submitted():
            tokens, params = _zeros(record.token_ids), _unworded(record.params)
            return replace(record, text="", token_ids=tokens, messages=(), params=params)
        case Ended():
            error = UNTOLD if record.error else ""
            return replace(record, text="", error=error, token=_zeros(record.token), text_end=_zeros(record.text_end))
        case PromptScored():
            token, other, end = map(_zeros, (record.token, record.alt_token, record.text_end))
            return replace(record, text="", token=token, alt_token=other, text_end=end)
        case _:
            return record


def _zeros(column: Array) -> Array:
    return freeze(np.zeros_like(column))


def _unworded(params: SamplingParams) -> SamplingParams:
    """Stop strings, banned words, grammars and biases are texts too."""
    return replace(params, stop=(), bad_words=(), choices=(), regex=None, json_schema=None, logit_bias=())
