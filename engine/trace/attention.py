"""What tokens attended to, as the records of steps tell it of requests that asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.trace.column import Array
from engine.trace.records.step import Step


@dataclass(frozen=True, slots=True)
class Attended:
    """Of one emitted token, the `index`-th of its step, of sample `branch` of a `request`. `codes` are uint8 `[layers,
    heads, context]`; `heads` is 1 where only the mean of all is known."""

    request: int
    branch: int
    index: int
    codes: Array

    @property
    def weights(self) -> Array:
        """float32 `[layers, heads, context]`: what its query, that of the token before it, gave each token of the
        prompt and the answer so far. Each head's sum to 1, and to less where attention sinks take a part."""
        return np.square(self.codes.astype(np.float32) / 255)


def attended(step: Step, layers: int) -> Iterator[Attended]:
    """What a step tells, in the order of its tokens; of a model with so many layers."""
    begin = 0
    columns = step.attended_token_index, step.attended_context, step.attended_end
    for index, context, end in zip(*(column.tolist() for column in columns)):
        row = int(step.token_row[index])
        codes = step.attended[begin:end].reshape(layers, -1, context)
        yield Attended(int(step.request[row]), int(step.branch[row]), index, codes)
        begin = end
