"""Which experts the steps of a trace activated: a row a step, and sums over the run. No Qt in here."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from app.inside.columns import Columns, Numbers
from engine.trace import Array, Header, Record, Step, activated_by_chance, rank_loads

EVERY = 128  # steps from one kept sum to the next


class ExpertHistory(Columns):
    """Feed it the records in order. Of each step: how many `tokens` were sent, each to the card's `active_experts` in
    every layer with experts, and how many of all layers' experts were `activated` by any of them; 0 where nobody
    told."""

    step, ended = Numbers(np.int64), Numbers(np.float64)
    tokens, activated = Numbers(np.int32), Numbers(np.int32)

    def __init__(self) -> None:
        super().__init__()
        self.header: Header | None = None
        self._sum: Array = np.zeros(0, np.int64)
        self._sums: list[bytes] = []  # before every `EVERY`th step
        self._at: tuple[int, Array] = -2, self._sum  # after the step of this place

    def __frozen__(self) -> dict[str, Any]:
        """Without what is only there to go on from."""
        return super().__frozen__() | {"_at": (-2, np.zeros(0, np.int64))}

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers with experts, from 0; none of any other model."""
        return self.header.model.expert_layers if self.header is not None else ()

    @property
    def experts(self) -> int:
        """Of each of these layers."""
        return self.header.model.experts if self.header is not None else 0

    @property
    def active(self) -> int:
        """How many of a layer's experts a token is sent to."""
        return self.header.model.active_experts if self.header is not None else 0

    @property
    def ranks(self) -> tuple[tuple[int, int], ...]:
        """Of each rank the experts that it alone has; empty where all have a part of all."""
        return self.header.rank_experts if self.header is not None else ()

    def rank_shares(self, sent: Array) -> list[float]:
        """Of what was sent, `[layers, experts]`, the share of each of them."""
        assert self.header is not None
        loads = rank_loads(self.header, sent).sum(0)
        return (loads / max(int(loads.sum()), 1)).tolist()

    def take(self, records: Sequence[Record]) -> None:
        """The next records of the trace."""
        for record in records:
            if isinstance(record, Header):
                self.header = record
                self._sum = np.zeros(len(self.layers) * self.experts, np.int64)
            elif isinstance(record, Step) and self.header is not None:
                if len(self) % EVERY == 0:
                    self._sums.append(zlib.compress(self._sum.tobytes(), 1))
                sent = record.expert
                tokens = int(sent.sum()) // max(1, len(self.layers) * self.active)
                self.append(record.step, record.ended, tokens, int(np.count_nonzero(sent)))
                if len(sent):
                    self._sum += sent

    def sent(self, step: Step) -> Array:
        """`[layers, experts]`: how many of a step's tokens each layer sent to each expert."""
        sent = step.expert if len(step.expert) else np.zeros_like(self._sum)
        return sent.reshape(len(self.layers), self.experts)

    def sent_until(self, place: int, step_at: Callable[[int], Step]) -> Array:
        """The same of all steps up to the one of this place; `step_at` gives a step by its place. Going on costs O(the
        steps between), any other move at most `EVERY` steps."""
        at, total = self._at
        begin = place // EVERY * EVERY
        if place == len(self) - 1:
            at, total = place, self._sum
        elif not begin - 1 <= at <= place:
            at, total = begin - 1, np.frombuffer(zlib.decompress(self._sums[place // EVERY]), np.int64)
        total = total.copy()
        for each in range(at + 1, place + 1):
            if len(sent := step_at(each).expert):
                total += sent
        self._at = place, total
        return total.reshape(len(self.layers), self.experts)

    def by_chance(self, tokens: Array) -> Array:
        """The share of the experts that steps of so many tokens activate on average, if all are as likely."""
        return activated_by_chance(self.active / max(self.experts, 1), tokens)

    def sizes_until(self, place: int) -> tuple[Array, Array, Array]:
        """Of the steps up to this one that sent any tokens: every size and number of activated experts that occurred,
        `tokens` and `activated`, and the `place` of the last step that was so."""
        tokens, activated = self.tokens[: place + 1], self.activated[: place + 1]
        places = np.flatnonzero(tokens)
        both = tokens[places].astype(np.int64) << 32 | activated[places]
        _, last = np.unique(both[::-1], return_index=True)
        found = places[len(places) - 1 - last]
        return tokens[found], activated[found], found
