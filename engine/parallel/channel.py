"""The memory over which the stages of a pipeline hand on what they computed: a lane each, read by the next of them."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.config.parallel import MOST_MICRO
from engine.kernels.cpu.relay import RankLanes, await_word, publish_word
from engine.parallel.board import BEGUN_ENDED, Board, RankTimes, times_of_stages

STEPS = 16  # that are remembered
PAGE = 4096
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ALIGNED = 64  # bytes
# Words of a lane: of each message, of each remembered step, and of each micro-batch there.
SEQUENCE, OFFSET, ROWS, WIDTH, KIND, MESSAGE = 0, 2, 3, 4, 5, 8  # the word after a sequence is the futex's
NUMBER, COUNT, SENDING, BYTES, ENDED, HEAD = 0, 1, 2, 3, 4, 8


class Overdue(RuntimeError):
    """A stage did not hand on in time, or is gone."""


def lane_bytes(tokens: int, widest: int) -> int:
    """The most that a stage hands on in a step of so many tokens, of each of which logits are drawn from and scored.
    Memory comes as it is written to."""
    return -(-(2 * tokens * widest * 4 + MOST_MICRO * ALIGNED) // PAGE) * PAGE


class Channel:
    """Lanes of the board's ranks in a file without a name, each of so many bytes (`lane_bytes`). `descriptor` is handed
    on; the memory lives as long as somebody has it. A step's messages lie in their lane until rank 0 begins the next
    step: by then it has had all logits, so all before them was read. Nobody ever waits for room."""

    def __init__(self, board: Board, rank: int, lane: int, patience: float, descriptor: int | None = None) -> None:
        self._board, self._rank, self._patience = board, rank, patience
        words = MOST_MICRO * MESSAGE + STEPS * (HEAD + MOST_MICRO * BEGUN_ENDED)
        self._data = -(-words * 8 // PAGE) * PAGE
        self.lane, self._lane = lane, self._data + lane
        if descriptor is None:
            descriptor = os.memfd_create("batchscope-stages")
            os.ftruncate(descriptor, board.ranks * self._lane)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, board.ranks * self._lane)
        lanes = np.frombuffer(self._memory, np.int64).reshape(board.ranks, -1)
        self._address = int(lanes.ctypes.data)
        self._messages = lanes[:, : MOST_MICRO * MESSAGE].reshape(board.ranks, MOST_MICRO, MESSAGE)
        self._steps = lanes[:, MOST_MICRO * MESSAGE : words].reshape(board.ranks, STEPS, -1)
        self._lanes = RankLanes(board.address, board.ranks, board.lane)
        self._step = self._at = 0

    def begin(self, step: int) -> None:
        """This rank comes to a step."""
        self._step, self._at = step, 0
        told = self._steps[self._rank, step % STEPS]
        told[:] = 0
        told[NUMBER] = step

    def send(self, part: int, x: Tensor) -> None:
        """Hands micro-batch `part` on to the next stage, or from the last to rank 0: `x` `[rows, width]`."""
        begun = time.monotonic_ns()
        if self._at + x.nbytes > self.lane:
            raise ValueError(f"{x.nbytes:,} bytes are more than a stage hands on in a step: {self.lane:,}")
        self._place(self._rank, self._at, x.shape, x.dtype).copy_(x)
        message, told = self._messages[self._rank, part], self._steps[self._rank, self._step % STEPS]
        message[OFFSET : KIND + 1] = self._at, *x.shape, DTYPES.index(x.dtype)
        self._at += -(-x.nbytes // ALIGNED) * ALIGNED
        told[BYTES] += x.nbytes
        told[ENDED] = time.monotonic_ns()
        told[SENDING] += told[ENDED] - begun
        publish_word(self._word(self._rank, part), self._step + 1)

    def receive(self, part: int) -> Tensor:
        """Micro-batch `part` of the stage before, or on rank 0 of the last: `[rows, width]`, to be read until the next
        step. Raises Overdue."""
        giver = (self._rank or self._board.ranks) - 1
        self._board.waits(self._rank, time.monotonic())
        word, given_up = self._word(giver, part), lambda: self._board.broken or bool(self._board.stopped())
        if not await_word(word, self._step + 1, self._lanes, self._patience, given_up):
            raise Overdue(f"rank {giver} did not hand on a micro-batch within {self._patience:g} s")
        self._board.waits(self._rank, 0)
        offset, rows, width, kind = self._messages[giver, part, OFFSET : KIND + 1].tolist()
        return self._place(giver, offset, (rows, width), DTYPES[kind])

    def computed(self, part: int, begun: int) -> None:
        """This rank computed a micro-batch from then, by `time.monotonic_ns`, until now."""
        told = self._steps[self._rank, self._step % STEPS]
        told[HEAD + BEGUN_ENDED * part : HEAD + BEGUN_ENDED * (part + 1)] = begun, time.monotonic_ns()
        told[COUNT] = part + 1

    def ended(self) -> None:
        """Rank 0 has all logits of the step."""
        self._steps[self._rank, self._step % STEPS, ENDED] = time.monotonic_ns()

    def times(self, step: int) -> RankTimes | None:
        """What a step took that rank 0 is done with."""
        told = self._steps[:, step % STEPS].copy()
        if (told[:, NUMBER] != step).any() or (told[:, COUNT] != told[0, COUNT]).any():
            return None
        spans = told[:, HEAD : HEAD + BEGUN_ENDED * int(told[0, COUNT])].reshape(len(told), -1, BEGUN_ENDED)
        return times_of_stages(spans, told[:, SENDING], int(told[0, ENDED]), told[:, BYTES])

    def handed_on(self) -> None:
        """Others have the memory: its descriptor is done with."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _word(self, rank: int, part: int) -> int:
        return self._address + rank * self._lane + 8 * part * MESSAGE

    def _place(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        rows, width = shape
        if not rows * width:
            return torch.empty(rows, width, dtype=dtype)
        at = rank * self._lane + self._data + offset
        return torch.frombuffer(self._memory, dtype=dtype, count=rows * width, offset=at).view(rows, width)
