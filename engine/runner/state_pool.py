"""Where the states of sequences are kept, by slot, of layers that keep one; and whose a step's tokens are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from engine.kernels.cpu.recorder import Unrecordable
from engine.kernels.recurrence import Sequences
from engine.models.states import Kept, Layer, RowStates, States, allocated
from engine.runner.launched_step import to_device
from engine.scheduler.plan import Row


@dataclass(frozen=True, slots=True)
class Rows:
    """So many of one length, `count` tokens each, in the slots int64 `[rows]`. `begin`: they have seen no token yet,
    whatever their slots hold. `mask` int64 `[rows, count]` is 0 where a row has a pad."""

    rows: int
    count: int
    slots: Tensor
    begin: bool = False
    mask: Tensor | None = None


class StatePool:
    """Those of `slots` sequences, and of one more that belongs to nobody: tensors `[slots + 1, ...]` by layer."""

    def __init__(self, states: States, slots: int, device: torch.device) -> None:
        self._device = device
        self.kept: list[Kept] = [allocated(layer, slots + 1, device) for layer in states.shapes]

    def taken(self, layer: int, rows: Rows) -> RowStates:
        """Copies of what the rows' slots hold."""
        whole = self.kept[layer].items()
        if rows.begin:
            return RowStates({name: states.new_empty(rows.rows, *states.shape[1:]) for name, states in whole}, True)
        return RowStates({name: states.index_select(0, rows.slots) for name, states in whole}, False)

    def put(self, layer: int, rows: Rows, taken: RowStates) -> None:
        """Keeps what became of them."""
        for name, states in self.kept[layer].items():
            states.index_copy_(0, rows.slots, taken.kept[name])

    def packed(self, rows: Sequence[Row]) -> "PackedStates":
        """Of rows that are packed into one sequence: those that are alike and follow each other go together."""
        parts = [list(alike) for _, alike in groupby(rows, lambda row: (row.count, row.first == 0))]
        return PackedStates(self, [self._together(part, part[0].count) for part in parts])

    def in_place(self, rows: Sequence[Row]) -> "PackedStates":
        """The same, for kernels on a CPU."""
        counts = [row.count for row in rows]
        slots, positions = [row.slot for row in rows], [range(row.first, row.first + row.count) for row in rows]
        at = np.concatenate(positions).astype(np.int64)
        whose = Sequences(*map(torch.from_numpy, (np.repeat(np.array(slots, np.int32), counts), at)))
        return replace(self.packed(rows), whose=whose)

    def next(self, slots: Tensor) -> "PackedStates":
        """Of one token each of sequences that have states, in slots int32 `[rows]` that may differ at each replay."""
        return PackedStates(self, [Rows(len(slots), 1, slots.long())], Sequences(slots, slots))

    def clear(self) -> None:
        for layer in self.kept:
            for states in layer.values():
                states.zero_()

    def padded(self, rows: Sequence[Row], mask: Tensor | None = None) -> "PackedStates":
        """Of rows that are all of one length, pads included."""
        return PackedStates(self, [self._together(rows, rows[0].padding + rows[0].count, mask)])

    def _together(self, rows: Sequence[Row], count: int, mask: Tensor | None = None) -> Rows:
        slots = to_device([row.slot for row in rows], self._device)
        return Rows(len(rows), count, slots, all(row.first == 0 for row in rows), mask)


@dataclass(frozen=True, slots=True)
class PackedStates:
    """A step's tokens, one after another, as parts of equal rows. Each part goes through a layer by itself. Without a
    `pool`, every row begins anew and nothing is kept. `whose` each token is, where our kernels serve them together."""

    pool: StatePool | None
    parts: Sequence[Rows]
    whose: Sequences | None = None

    def forgotten(self) -> "PackedStates":
        """The same rows, of which nothing is kept."""
        return PackedStates(None, self.parts)

    def in_place(self, number: int) -> tuple[Kept, Sequences] | None:
        return None if self.pool is None or self.whose is None else (self.pool.kept[number], self.whose)

    def through(self, number: int, hidden: Tensor, layer: Layer) -> Tensor:
        whole, done, first = hidden.flatten(0, 1), list[Tensor](), 0
        for part in self.parts:
            tokens = part.rows * part.count
            x = whole[first : first + tokens].unflatten(0, (part.rows, part.count))
            first += tokens
            kept = None if self.pool is None else self.pool.taken(number, part)
            done.append(layer(x, kept, part.mask).flatten(0, 1))
            if self.pool is not None and kept is not None:
                self.pool.put(number, part, kept)
        return (done[0] if len(done) == 1 else torch.cat(done)).view(hidden.shape[0], hidden.shape[1], -1)


@dataclass(frozen=True, slots=True)
class RecordedStates:
    """Of a step that is recorded: what is no kernel of ours cannot be."""

    pool: StatePool
    whose: Sequences

    def in_place(self, number: int) -> tuple[Kept, Sequences]:
        return self.pool.kept[number], self.whose

    def through(self, number: int, hidden: Tensor, layer: Layer) -> Tensor:
        raise Unrecordable("layers that keep a state of this kind have no compiled kernel")
