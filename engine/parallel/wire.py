"""A step's plan as a row of int32, for ranks that compute it and know nothing of requests. No torch.

What a rank knows of a slot stays known: of a block table only what is new since the slot's last step is sent, of tokens
those that are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from engine.scheduler.plan import Row, StepPlan
from engine.trace.records import Kind

HEAD = 5  # rows, and pairs of blocks that are copied, swapped out and swapped in, and scored rows
COLUMNS = 9  # slot, first, count, kind, samples, adapter, tokens forgotten, blocks that stay, blocks that are new
THERE = 8  # beside the kind: the row's last token is on the device
KINDS = {int(kind) + there: (kind, there > 0) for kind in Kind for there in (0, THERE)}

Words = np.ndarray[Any, np.dtype[np.int32]]


class Sender:
    """Packs the plans of one runner, in order."""

    def __init__(self, slots: int) -> None:
        self._blocks: list[list[int]] = [[] for _ in range(slots)]

    def __call__(self, plan: StepPlan, there: Callable[[Row], bool] | None = None) -> bytes:
        """`there`: whether a row's last token is taken from where it was sampled, on the device."""
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
            kind = row.kind if there is None or not there(row) else row.kind + THERE
            beside = row.samples, row.branch.adapter, row.forgotten
            words += (row.slot, row.first, row.count, kind, *beside, stay, len(now) - stay)
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
    adapter: int = 0
    beam: None = None  # whatever chooses among branches is rank 0's alone


class Receiver:
    """Makes plans again of what a `Sender` packed: rows, and the blocks to copy before them. A row `joins` where its
    slot's block table no longer begins with what it was, and is `fed` where its last token is on the device."""

    def __init__(self, slots: int) -> None:
        self._slots = [Slot(i) for i in range(slots)]

    def __call__(self, data: bytes) -> StepPlan:
        words = np.frombuffer(data, np.int32).tolist()
        counts, at = words[:HEAD], HEAD + words[0] * COLUMNS
        columns = [words[i : i + COLUMNS] for i in range(HEAD, at, COLUMNS)]
        new_at = at + sum([column[2] for column in columns])  # where blocks begin: behind all tokens
        rows = []
        for slot, first, count, kind, samples, adapter, forgotten, stay, new in columns:
            known: Any = self._slots[slot]
            known.adapter = adapter
            joins = stay != len(known.blocks)
            if new or joins:
                known.blocks[stay:] = words[new_at : new_at + new]
                new_at += new
            if first > len(known.tokens):
                known.tokens += [0] * (first - len(known.tokens))
            known.tokens[first:] = words[at : at + count]
            at += count
            kind, there = KINDS[kind]
            rows.append(Row(known, slot, first, count, kind, samples, there, joins=joins, forgotten=forgotten))
        pairs = []
        for count in counts[1:4]:
            pairs.append(tuple(zip(words[new_at : new_at + 2 * count : 2], words[new_at + 1 : new_at + 2 * count : 2])))
            new_at += 2 * count
        threes = zip(words[new_at::3], words[new_at + 1 :: 3], words[new_at + 2 :: 3])
        scored = tuple((rows[row], range(start, stop)) for row, start, stop in threes)
        copies, out, back = pairs
        return StepPlan(tuple(rows), copies=copies, swap_out=out, swap_in=back, scored=scored)
