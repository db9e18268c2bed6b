"""What a prompt's logits say of its own tokens, found where they lie."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.scheduler.plan import Row

ROWS = 64  # positions at a time, of whose logits there are copies in float32


class ScoredPositions(NamedTuple):
    """Of the positions told of, row after row: float32 `logprobs` `[positions]` of the tokens that follow, and the
    likeliest there, `alternatives` and float32 `alternative_logprobs` `[positions, most]`."""

    logprobs: Tensor
    alternatives: Tensor
    alternative_logprobs: Tensor

    def tell(self, rows: Sequence[tuple[Row, range]]) -> None:
        """Tells the rows' requests; on the host."""
        columns, begin = [column.numpy() for column in self], 0
        for row, positions in rows:
            end, scores = begin + len(positions), row.branch.request.scores
            if scores is not None:
                scores.tell(positions, *(column[begin:end] for column in columns))
            begin = end


def scored(
    logits: Tensor, rows: Sequence[tuple[Row, range]], to_tensor: Callable[[Sequence[int]], Tensor]
) -> ScoredPositions:
    """`logits` `[positions, vocabulary]` are those of the rows' positions, one row after another; `to_tensor` brings
    numbers to their device. The log-probabilities are of the model's own distribution, computed in float32."""
    asked = [(scores, positions) for row, positions in rows if (scores := row.branch.request.scores) is not None]
    follows = to_tensor([scores.tokens[at + 1] for scores, positions in asked for at in positions])
    most = max(scores.asked for scores, _ in asked)
    parts = []
    for begin in range(0, len(follows), ROWS):
        part = logits[begin : begin + ROWS].float()
        whole = part.logsumexp(-1, keepdim=True)
        values, ids = part.topk(most, -1)
        own = part.gather(-1, follows[begin : begin + ROWS, None])
        parts.append(((own - whole)[:, 0], ids, values - whole))
    return ScoredPositions(*(torch.cat(column) for column in zip(*parts)))
