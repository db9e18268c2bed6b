"""A step's rows of any lengths as the words that the device is sent of them, in the places of a shape."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from torch import Tensor

from engine.kernels.attention.packed_rows import SHORT
from engine.scheduler.plan import Row

ALIGNED = 4  # words, to a multiple of which each part begins: 16 bytes
LONG, BEHIND = SHORT + 1, 4  # tokens of a long row, at least; short rows behind it that count as long and are expected


class PackedWords(NamedTuple):
    """Of each token its id int32 `[tokens]`, -1 for one that the row's slot has sampled last. Of each row where its
    tokens begin `[rows + 1]`, where its first one lies in its blocks and its slot `[rows]`. Of each token that is drawn
    the index of the one before it, its slot and its position `[kept]`."""

    ids: Tensor
    starts: Tensor
    firsts: Tensor
    slots: Tensor
    kept: Tensor
    kept_slots: Tensor
    drawn_at: Tensor


@dataclass(frozen=True, slots=True)
class PackedShape:
    """Room for `tokens` tokens, for `short` rows of up to SHORT tokens each and `long` rows of any length after them,
    and for `kept` tokens that are drawn. Rows that there are not have no tokens; tokens that there are not belong to no
    row.
    """

    tokens: int
    short: int
    long: int
    kept: int

    @staticmethod
    def of(rows: Sequence[Row]) -> "PackedShape":
        """The shape that the rows fill."""
        short = short_rows(rows)
        return PackedShape(sum(row.count for row in rows), short, len(rows) - short, sum(row.samples for row in rows))

    @staticmethod
    def captured(tokens: int, slots: int, drawn: int) -> "PackedShape":
        """Of a captured step of so many tokens, for as many rows of each kind as so many slots can have, each of them
        `drawn` tokens. More long rows would cost programs of attention that find nothing to do: see `room_wanted`."""
        rows = min(slots, tokens)
        return PackedShape(tokens, rows, min(rows, tokens // LONG + BEHIND), min(slots * drawn, tokens))

    @property
    def rows(self) -> int:
        return self.short + self.long

    @property
    def size(self) -> int:
        """In words."""
        return self._parts[-1].stop

    @property
    def _parts(self) -> list[slice]:
        """Where each of `PackedWords` lies."""
        sizes = self.tokens, self.rows + 1, self.rows, self.rows, *(self.kept,) * 3
        begins = accumulate((-(-size // ALIGNED) * ALIGNED for size in sizes), initial=0)
        return [slice(begin, begin + size) for begin, size in zip(begins, sizes)]

    def filled(self, rows: Sequence[Row], dummy: int) -> np.ndarray:
        """The rows' words, int32. What is drawn beside theirs is for the `dummy` slot, which nobody reads."""
        short, counts = short_rows(rows), [row.count for row in rows]
        total = sum(counts)
        starts = [0, *accumulate(counts)]
        last = [i for row, end in zip(rows, starts[1:]) for i in range(end - row.samples, end)]
        filled = total, short, len(rows) - short, len(last)
        assert all(size <= room for size, room in zip(filled, astuple(self))), (filled, self)
        ids: list[int] = []
        for row in rows:
            ids += row.ids(unknown=-1)
        words = np.zeros(self.size, np.int32)
        words[:total] = ids
        _, begins, firsts, slots, kept, kept_slots, drawn_at = (words[part] for part in self._parts)
        begins[:short], begins[short : self.short] = starts[:short], starts[short]
        long = slice(self.short, self.short + len(rows) - short)
        begins[long], begins[long.stop :] = starts[short:-1], total
        slots[:], kept_slots[:] = dummy, dummy
        for part, values in ((firsts, [row.lies_at for row in rows]), (slots, [row.slot for row in rows])):
            part[:short], part[long] = values[:short], values[short:]
        count = len(last)
        kept[:count], kept_slots[:count] = last, [row.slot for row in rows for _ in range(row.samples)]
        drawn_at[:count] = [at for row in rows for at in row.drawn_at]
        return words

    def apart(self, words: Tensor) -> PackedWords:
        """The parts of words int32 that are `filled` for this shape, where they lie."""
        return PackedWords(*(words[part] for part in self._parts))


def room_wanted(rows: Sequence[Row]) -> int:
    """The tokens of a captured step that has room for the rows: more than they have where many behind a long row are
    short."""
    return max(sum(row.count for row in rows), LONG * (len(rows) - short_rows(rows) - BEHIND))


def short_rows(rows: Sequence[Row]) -> int:
    """How many of the first rows are short, as attention has it."""
    return next((i for i, row in enumerate(rows) if row.count > SHORT), len(rows))
