"""What drawn tokens attended to, noted beside the attention itself: for requests that ask for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from engine.kernels.attention.options import Options
from engine.kernels.attention.weights import attention_weights
from engine.scheduler.plan import Row

MOST = 1 << 16  # bytes that are told of one token; of more, heads are told on average
CODE = 255.0  # of a weight of 1: codes are those of square roots, so that a weight of 4e-6 is not nothing yet

Gather = Callable[[int, Row, int], Tensor]


class Query(NamedTuple):
    """That of one drawn token, whose place among those of its step is `drawn`, and where it lies in the queries
    `[sequences, heads, tokens, head_dim]` that layers are called with. `keys`: those that it sees, `[context, kv_heads,
    head_dim]`, in a layer's cache, which has its own by then, or among the keys `[sequences, kv_heads, tokens,
    head_dim]` of the call."""

    drawn: int
    sequence: int
    token: int
    keys: Callable[[int, Tensor], Tensor]


class Watch:
    """Notes layer by layer what the queries of one step give their keys."""

    def __init__(self, queries: Sequence[Query]) -> None:
        self._queries = queries
        self._found: list[dict[int, Tensor]] = [{} for _ in queries]  # by layer

    def note(self, number: int, cache: int, query: Tensor, key: Tensor, options: Options) -> None:
        """Layer `number`, whose keys are those of layer `cache`, was called with these."""
        for asked, found in zip(self._queries, self._found):
            own = query[asked.sequence, :, asked.token]
            found[number] = attention_weights(own, asked.keys(cache, key), options)

    def told(self) -> dict[int, Tensor]:
        """By drawn token uint8 `[layers, heads, context]`, as `CODE` says; the mean of all heads, `[layers, 1,
        context]`, where that is more than `MOST` bytes, or layers have different numbers of heads."""
        return {asked.drawn: _coded(found) for asked, found in zip(self._queries, self._found) if found}


def _coded(found: dict[int, Tensor]) -> Tensor:
    layers = [found[number] for number in sorted(found)]
    if len({len(layer) for layer in layers}) > 1 or sum(layer.numel() for layer in layers) > MOST:
        layers = [layer.mean(0, keepdim=True) for layer in layers]
    return torch.stack(layers).sqrt_().mul_(CODE).round_().to(torch.uint8)


def packed(rows: Sequence[Row], gather: Gather) -> Watch | None:
    """Of rows that are packed into one sequence, those whose requests ask for it; `gather` finds the keys of a layer,
    those of the first tokens that a row's blocks hold. None where nobody asks."""
    queries: list[Query] = []
    end = drawn = 0
    for row in rows:
        end += row.count
        if row.branch.request.watched:
            for i, context in enumerate(row.drawn_at):
                keys = partial(_gathered, gather, row, context - row.forgotten)
                queries.append(Query(drawn + i, 0, end - row.samples + i, keys))
        drawn += row.samples
    return Watch(queries) if queries else None


def _gathered(gather: Gather, row: Row, length: int, layer: int, key: Tensor) -> Tensor:
    return gather(layer, row, length)
