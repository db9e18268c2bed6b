"""What tokens attended to, as the records of steps tell it of requests that asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.trace.column import Array
from engine.trace.records.header import Header
from engine.trace.records.step import Step


@dataclass(frozen=True, slots=True)
class Attended:
    """Of one emitted token, the `index`-th of its step, of sample `branch` of a `request`. `codes` are uint8 `[layers,
    heads, context]`; `heads` is 1 where only the mean of all is known. Of the sample's tokens those at the positions
    `forgotten` were no longer in the cache: `context` counts the others."""

    request: int
    branch: int
    index: int
    codes: Array
    forgotten: range = range(0)

    @property
    def weights(self) -> Array:
        """float32 `[layers, heads, context]`: what its query, that of the token before it, gave each token of the
        prompt and the answer so far. Each head's sum to 1, and to less where attention sinks take a part."""
        return np.square(self.codes.astype(np.float32) / 255)

    @property
    def tokens(self) -> Array:
        """int `[context]`: which of the sample's tokens each is, from its prompt's first on."""
        context, gone = self.codes.shape[-1], self.forgotten
        return np.delete(np.arange(context + len(gone)), np.s_[gone.start : gone.stop])


def attended(step: Step, header: Header) -> Iterator[Attended]:
    """What a step of this trace tells, in the order of its tokens."""
    sinks = header.config.sink_tokens
    begin = 0
    columns = step.attended_token_index, step.attended_context, step.attended_end
    for index, context, end in zip(*(column.tolist() for column in columns)):
        row = int(step.token_row[index])
        codes = step.attended[begin:end].reshape(len(header.model.attention_layers), -1, context)
        gone = int(step.forgotten[row]) if len(step.forgotten) else 0
        forgotten = range(sinks, sinks + gone) if gone else range(0)
        yield Attended(int(step.request[row]), int(step.branch[row]), index, codes, forgotten)
        begin = end
