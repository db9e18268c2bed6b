"""Decode steps on a CPU, recorded once for every number of rows: what CUDA graphs are to a GPU."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.kernels.cpu.calls import NativeDecode, greedy
from engine.kernels.cpu.program import Program
from engine.kernels.cpu.recorder import Unrecordable
from engine.scheduler.plan import Row

LONG = 0.3  # seconds of a step of one row, in which what Python takes is not to be seen
MOST_ROWS = 256
LOGITS = 64 << 20  # bytes that the logits of a recorded step may take
PROVED = 4  # positions of the rows that prove a program
# Between a program's logits and the model's, relative to the largest of them: they are of the same kernels, but for
# what torch computes between them.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}


def rows_to_record(slots: int, vocabulary: int, dtype: torch.dtype) -> int:
    """How many rows a recorded step has room for."""
    return max(1, min(slots, MOST_ROWS, LOGITS // (vocabulary * dtype.itemsize)))


class DecodeInputs:
    """What a step of up to `rows` decode rows reads, at fixed places: `ids` and `positions` int64; int32 `blocks` and
    `offsets`, where each token's K and V go, and the `seen` blocks of each slot, of which there are up to `width`."""

    def __init__(self, rows: int, slots: int, width: int, block_size: int) -> None:
        self.rows, self.block_size = rows, block_size
        self.ids, self.positions = torch.zeros(2, rows, dtype=torch.long)
        self.blocks, self.offsets, starts, lengths = torch.zeros(4, rows, dtype=torch.int32)
        self.tables = torch.zeros(slots, width, dtype=torch.int32)
        self.seen = NativeDecode(rows, self.tables, starts, lengths)
        self._places = [x.numpy() for x in (self.ids, self.positions, self.blocks, self.offsets, starts, lengths)]
        self._known: list[list[int]] = [[] for _ in range(slots)]

    @property
    def all(self) -> list[Tensor]:
        seen = self.seen
        return [self.ids, self.positions, self.blocks, self.offsets, seen.tables, seen.starts, seen.lengths]

    def fill(self, ids: Sequence[int], at: Sequence[int], tables: Sequence[list[int]], slots: Sequence[int]) -> None:
        """Each row's token, its position, its blocks and its slot."""
        for slot, blocks in zip(slots, tables, strict=True):
            if self._known[slot] != blocks:
                self._known[slot] = blocks[:]
                self.tables[slot, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
        positions = np.array(at)
        blocks = [table[position // self.block_size] for table, position in zip(tables, at)]
        starts = np.array(slots) * self.tables.shape[1]
        values = ids, positions, blocks, positions % self.block_size, starts, positions + 1
        for there, these in zip(self._places, values, strict=True):
            there[: len(ids)] = these


class RecordedDecode:
    """The decode steps of a model, proved to give the logits `[rows, vocabulary]` that `forward` gives over the same
    inputs, of which those of `inputs.rows` rows were recorded, and the greedy choice of them. `report` hears how much
    of it is done, of how much, and may raise. Raises Unrecordable."""

    def __init__(
        self, forward: Callable[[int], Tensor], inputs: DecodeInputs, blocks: int, report: Callable[[int, int], None]
    ) -> None:
        self._inputs, rows = inputs, inputs.rows
        counts = sorted({1, -(-rows // 2), rows})
        report(0, 1 + len(counts))
        self._rehearse(1, blocks)
        if (seconds := min(self._seconds(forward) for _ in range(2))) > LONG:
            raise Unrecordable(f"a step of {seconds:.1f} s gains nothing by it")
        self._rehearse(rows, blocks)
        self._greedy: list[Tensor] = []

        def step() -> tuple[Tensor, ...]:
            logits = forward(rows)
            return logits, *greedy(logits)

        self._program = Program(step, inputs.all, rows)
        for done, count in enumerate(counts, 1):
            report(done, 1 + len(counts))
            self._rehearse(count, blocks)
            expected = forward(count)
            difference = (self._program(count)[0].float() - expected.float()).abs().max()
            off = difference / expected.float().abs().max().clamp_min(1e-6)
            if not off <= TOLERANCE[expected.dtype]:
                raise Unrecordable(f"replayed over {count} rows, its logits are off by {float(off):.2g}")

    def _seconds(self, forward: Callable[[int], Tensor]) -> float:
        begun = time.perf_counter()
        forward(1)
        return time.perf_counter() - begun

    def _rehearse(self, count: int, blocks: int) -> None:
        """Rows of some tokens at some positions, each in a block of its own where there are as many."""
        places = [min(i, blocks - 1) for i in range(count)]
        at = [i % min(PROVED, self._inputs.block_size) for i in places]
        self._inputs.fill([1 + i % 7 for i in range(count)], at, [[i] for i in places], places)

    @property
    def attention(self) -> float:
        """Seconds of the last step that were spent in attention."""
        return self._program.attention

    @property
    def rows(self) -> int:
        """How many it has room for."""
        return self._inputs.rows

    def __call__(self, rows: Sequence[Row], last_tokens: Tensor) -> Tensor:
        """The logits `[rows, vocabulary]` of decode rows, overwritten by the next step. `last_tokens` are those that
        the slots drew, for rows whose token nobody has read yet."""
        branches = [row.branch for row in rows]
        at = [row.first for row in rows]
        ids = [
            int(last_tokens[row.slot]) if row.fed else branch.tokens[row.first]
            for row, branch in zip(rows, branches, strict=True)
        ]
        self._inputs.fill(ids, at, [branch.blocks for branch in branches], [row.slot for row in rows])
        logits, *self._greedy = self._program(len(rows))
        return logits

    def greedy(self) -> tuple[Tensor, Tensor]:
        """The likeliest tokens of the last step and their log-probabilities, as the kernel of that name gives them."""
        tokens, logprobs = self._greedy
        return tokens.clone(), logprobs.clone()
