"""What the device knows of the branches, by slot, so that the host sends a step only what has changed."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.kernels.step_inputs import SlotState, apply_changes
from engine.runner.launched_step import staged
from engine.scheduler.plan import Row
from engine.scheduler.request import Branch


class DeviceRows:
    """The state of `slots` slots and of a dummy one after them, int32 on the device: `parameters` `[slots + 1, words]`
    of sampling, `lengths` `[slots + 1]` (tokens whose K and V lie in its blocks, or are launched to), `forgotten`
    `[slots + 1]`, how many more there were before these, `adapters` `[slots + 1]`, the numbers of theirs, `tables`
    `[slots + 1, width]` of blocks, and `row_slots` `[most_rows]`, the slots of a decode step's rows.

    The host remembers what it has sent. Invariant: after `follow` and the step's own kernel the device holds, for each
    row's slot, the row's blocks and the length after the step. The dummy slot has the length 0 and one block, `dummy`,
    that no branch owns. `last_tokens` int64 `[slots + 1]` is written by sampling alone.
    """

    def __init__(self, slots: int, words: int, width: int, most_rows: int, dummy: int, device: torch.device) -> None:
        self._words, self._width = words, width
        sizes = ((slots + 1) * words, *(slots + 1,) * 3, most_rows, (slots + 1) * width)
        ends = np.cumsum(sizes).tolist()
        self._lengths_at, self._forgotten_at, self._adapters_at, self._rows_at, self._tables_at, end = ends
        self._state = torch.zeros(end, dtype=torch.int32, device=device)
        parameters, self.lengths, self.forgotten, self.adapters, self.row_slots, tables = self._state.split(sizes)
        self.parameters, self.tables = parameters.view(slots + 1, words), tables.view(slots + 1, width)
        self.last_tokens = torch.zeros(slots + 1, dtype=torch.long, device=device)
        self.state = SlotState(self.last_tokens, self.lengths, self.forgotten, self.tables)
        self.dummy_slot = slots
        self.tables[slots] = dummy
        self.row_slots.fill_(slots)
        self.forget()

    def forget(self) -> None:
        """Forgets what was sent: the next step that names a branch sends all of it again."""
        self._owners: list[Branch | None] = [None] * self.dummy_slot
        self._sent = [0] * self.dummy_slot  # blocks of the owner's table
        self._adapters = [-1] * self.dummy_slot
        self._forgotten = [-1] * self.dummy_slot
        self._length = [-1] * self.dummy_slot
        self._newest = [-1] * self.dummy_slot  # the position of the token that the slot's last token is
        self._row_slots = [-1] * len(self.row_slots)
        self._index: list[int] = []  # of the state's elements that the device must hear of, and their values
        self._value: list[int] = []

    def forget_drawn(self) -> None:
        """Knows of no slot's last token that it is its branch's."""
        self._newest = [-1] * self.dummy_slot

    def knows(self, row: Row) -> bool:
        """True when the row's slot sampled the row's only token: it need not be sent. A beam's is chosen elsewhere."""
        sampled = self._owners[row.slot] is row.branch and self._newest[row.slot] == row.first
        return sampled and row.branch.beam is None

    def follow(self, rows: Sequence[Row], words: Callable[[Branch], Sequence[int]]) -> list[Branch]:
        """Notes what the device must hear before these rows; returns the branches that are new in their slot. `words`
        are a branch's parameters. A branch's table only grows, but for one that was preempted, which begins anew, one
        that forgets, of which blocks move up, and for beams, which take others' blocks."""
        index, value, joined = self._index, self._value, []
        owners, sent, adapters, forgotten = self._owners, self._sent, self._adapters, self._forgotten
        for row in rows:
            branch, slot = row.branch, row.slot
            if owners[slot] is not branch:
                owners[slot], sent[slot] = branch, 0
                joined.append(branch)
                index += range(slot * self._words, (slot + 1) * self._words)
                value += words(branch)
            elif branch.beam is not None or row.joins:
                sent[slot] = 0
            if forgotten[slot] != row.forgotten:
                forgotten[slot], sent[slot] = row.forgotten, 0
                index.append(self._forgotten_at + slot)
                value.append(row.forgotten)
            if adapters[slot] != branch.adapter:  # a slot of another rank's is the same branch to it, whoever has it
                adapters[slot] = branch.adapter
                index.append(self._adapters_at + slot)
                value.append(branch.adapter)
            blocks, known = branch.blocks, sent[slot]
            if known < len(blocks):
                at = self._tables_at + slot * self._width
                index += range(at + known, at + len(blocks))
                value += blocks[known:]
                sent[slot] = len(blocks)
        return joined

    def line_up(self, rows: Sequence[Row], count: int) -> None:
        """Notes what the device must hear for a decode step of these rows, filled with dummies up to `count`."""
        index, value, lengths, row_slots = self._index, self._value, self._length, self._row_slots
        for row in rows:
            if lengths[row.slot] != row.lies_at:
                index.append(self._lengths_at + row.slot)
                value.append(row.lies_at)
            lengths[row.slot], self._newest[row.slot] = row.lies_at + 1, row.first + 1
        for i, slot in enumerate([row.slot for row in rows] + [self.dummy_slot] * (count - len(rows))):
            if row_slots[i] != slot:
                row_slots[i] = slot
                index.append(self._rows_at + i)
                value.append(slot)

    def set_lengths(self, rows: Sequence[Row]) -> None:
        """Notes the lengths that a step of these rows sets on the device."""
        for row in rows:
            self._length[row.slot] = row.lies_at + row.count
            self._newest[row.slot] = row.first + row.count if row.samples == 1 else -1

    def send(self, words: np.ndarray | None = None) -> Tensor | None:
        """Sends what was noted and, in the same copy, `words`; returns these, int32 on the device, aligned to 16
        bytes."""
        changes = self._index + self._value
        self._index.clear()
        self._value.clear()
        if not changes and words is None:
            return None
        first, *others = staged([changes] if words is None else [changes, words], self._state.device)
        apply_changes(self._state, first)
        return others[0] if others else None
