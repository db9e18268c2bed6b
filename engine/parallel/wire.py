"""A step's plan as a row of int32, for ranks that compute it and know nothing of requests. No torch.

What a rank knows of a slot stays known: of a block table only what is new since the slot's last step is sent, of tokens
those that are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from engine.scheduler.plan import Row, StepPlan
from engine.trace.records import Kind

HEAD = 5  # rows, and pairs of blocks that are copied, swapped out and swapped in, and scored rows
COLUMNS = 7  # slot, first, count, kind, samples, blocks that stay, blocks that are new

Words = np.ndarray[Any, np.dtype[np.int32]]


class Sender:
    """Packs the plans of one runner, in order."""

    def __init__(self, slots: int) -> None:
        self._blocks: list[list[int]] = [[] for _ in range(slots)]

    def __call__(self, plan: StepPlan) -> bytes:
        places = {id(row): i for i, row in enumerate(plan.rows)}
        scored = [(places[id(row)], positions.start, positions.stop) for row, positions in plan.scored]
        pairs = plan.copies, plan.swap_out, plan.swap_in
        words = [len(plan.rows), *map(len, pairs), len(scored)]
        ids: list[int] = []
        blocks: list[int] = []
        for row in plan.rows:
            known, now = self._blocks[row.slot], row.branch.blocks
            stay = len(known) if now[: len(known)] == known else _alike(known, now)
            if stay < len(known) or stay < len(now):
                self._blocks[row.slot] = now[:]
            ids += row.ids()
            blocks += now[stay:]
            words += (row.slot, row.first, row.count, row.kind, row.samples, stay, len(now) - stay)
        words += chain(ids, blocks, *chain(*pairs, scored))
        return np.array(words, np.int32).tobytes()


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many they begin with that are the same."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


@dataclass(slots=True)
class Slot:
    """What a rank knows of the branch in a slot: its blocks, and of its tokens those that it computed."""

    slot: int
    blocks: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


class Receiver:
    """Makes plans again of what a `Sender` packed: rows, and the blocks to copy before them."""

    def __init__(self, slots: int) -> None:
        self._slots = [Slot(i) for i in range(slots)]

    def __call__(self, data: bytes) -> StepPlan:
        words = np.frombuffer(data, np.int32)
        counts = words[:HEAD].tolist()
        end = HEAD + counts[0] * COLUMNS
        columns: list[list[int]] = words[HEAD:end].reshape(-1, COLUMNS).tolist()
        left = iter(words[end:].tolist())
        ids = [_take(left, count) for _, _, count, *_ in columns]
        rows = []
        for (slot, first, count, kind, samples, stay, new), tokens in zip(columns, ids):
            known: Any = self._slots[slot]
            known.blocks[stay:] = _take(left, new)
            known.tokens[first:] = [0] * (first - len(known.tokens)) + tokens
            rows.append(Row(known, slot, first, count, Kind(kind), samples, fed=False))
        copies, out, back = (tuple(_pairs(left, count)) for count in counts[1:4])
        scored = tuple((rows[row], range(start, stop)) for row, start, stop in _threes(left, counts[4]))
        return StepPlan(tuple(rows), copies=copies, swap_out=out, swap_in=back, scored=scored)


def _take(left: Iterable[int], count: int) -> list[int]:
    return [value for _, value in zip(range(count), left)]


def _pairs(left: Iterable[int], count: int) -> Iterable[tuple[int, int]]:
    for _ in range(count):
        a, b = _take(left, 2)
        yield a, b


def _threes(left: Iterable[int], count: int) -> Iterable[tuple[int, int, int]]:
    for _ in range(count):
        a, b, c = _take(left, 3)
        yield a, b, c
