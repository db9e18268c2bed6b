"""The memory that ranks on one machine share: what they send each other, and what each step took them."""

import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Words = np.ndarray[Any, np.dtype[np.int64]]
SLOTS = 16  # steps that are remembered
CALLS = 1024  # of a step, whose times are told apart
HEAD = 8  # words of a step before them
WORDS = 64  # of a lane before its steps
BUFFER = 4 << 20  # bytes of a message
PAGE = 4096
MAIL = 1 << 18  # bytes of a plan
# As `native/exchange.c` has them, and where steps go on.
SEQUENCE, WAITS, SLOT, BROKEN, STOPPED, STEP, TAKEN = 0, 3, 4, 5, 7, 8, 9
NUMBER, CALLED, BYTES, BEGUN, ENDED, SENDING = range(6)
BEGUN_ENDED = 2  # words of a micro-batch
LATE = 0.0005  # seconds that a rank may take longer than rank 0 to tell what a step took


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Of one step, by rank, seconds: computing, sending and adding up what all had ready, and waiting for a rank that
    had not; and the bytes that each sent. Of a pipeline also when, by `time.monotonic`, each rank began and ended each
    micro-batch: those of rank 0 first."""

    computing: Sequence[float]
    communicating: Sequence[float]
    waiting: Sequence[float]
    sent: Sequence[int]
    micro_begun: Sequence[float] = ()
    micro_ended: Sequence[float] = ()


def times_of_stages(spans: Words, sending: Words, ended: int, sent: Words) -> RankTimes:
    """Of a pipeline's step, in nanoseconds by `time.monotonic`: `spans` `[ranks, micro-batches, 2]` in which each was
    computed, `sending` `[ranks]` that handing on took, and when rank 0 had all logits. Whatever was neither, from its
    first micro-batch on until then, was waiting. `sent` `[ranks]` are bytes."""
    computing = (spans[:, :, 1] - spans[:, :, 0]).sum(axis=1)
    waiting = (ended - spans[0, 0, 0] - computing - sending).clip(min=0)
    each = computing, sending, waiting, spans[:, :, 0], spans[:, :, 1]
    computed, handed, waited, begun, done = ((1e-9 * x).ravel().tolist() for x in each)
    return RankTimes(computed, handed, waited, sent.tolist(), begun, done)


class Board:
    """Lanes of so many ranks in a file without a name: `descriptor` is handed on, and the memory lives as long as
    somebody has it."""

    def __init__(self, ranks: int, descriptor: int | None = None) -> None:
        ring = SLOTS * (HEAD + CALLS) * 8
        self.buffers = -(-(WORDS * 8 + ring) // PAGE) * PAGE
        self.lane, self.ranks = self.buffers + 2 * BUFFER, ranks
        size = ranks * self.lane
        if descriptor is None:
            descriptor = os.memfd_create("batchscope-ranks")
            os.ftruncate(descriptor, size + PAGE + 2 * MAIL)
        self.descriptor = descriptor
        self.memory = mmap.mmap(descriptor, size + PAGE + 2 * MAIL)
        lanes = np.frombuffer(self.memory, np.int64, size // 8).reshape(ranks, -1)
        self.address = int(lanes.ctypes.data)
        self._words = lanes[:, :WORDS]
        self.mail = size  # where in the memory the words of plans are, and a page further the plans
        self._steps = lanes[:, WORDS : WORDS + SLOTS * (HEAD + CALLS)].reshape(ranks, SLOTS, HEAD + CALLS)

    def begin(self, rank: int, step: int) -> None:
        """A rank comes to a step."""
        slot = step % SLOTS
        begun = time.monotonic_ns()
        self._steps[rank, slot, :HEAD] = step, 0, 0, begun, begun, 0, 0, 0
        self._words[rank, SLOT] = 8 * (WORDS + slot * (HEAD + CALLS))
        self._words[rank, STEP] = step

    def tell(self, rank: int, step: int, calls: Sequence[float], whole: float, sent: int) -> None:
        """What a step took a rank that does not meet the others by our kernels, in seconds: each call, and the whole
        of it; and the bytes that it sent."""
        told, known = self._steps[rank, step % SLOTS], calls[:CALLS]
        if told[NUMBER] != step:  # it was told too late: another has its place
            return
        told[HEAD : HEAD + len(known)] = [int(1e9 * seconds) for seconds in known]
        told[BYTES], told[BEGUN], told[ENDED] = sent, 0, int(1e9 * whole)
        told[CALLED] = len(calls)

    def tell_stage(
        self, rank: int, step: int, spans: Sequence[tuple[int, int]], sending: int, ended: int, sent: int
    ) -> None:
        """What a step took a stage that hands on by no memory of ours, in nanoseconds by `time.monotonic`: when it
        began and ended each micro-batch, handing on, and when it was done; and the bytes that it sent."""
        told = self._steps[rank, step % SLOTS]
        if told[NUMBER] != step:
            return
        told[HEAD : HEAD + BEGUN_ENDED * len(spans)] = [at for span in spans for at in span]
        told[BYTES], told[ENDED], told[SENDING] = sent, ended, sending
        told[CALLED] = len(spans)

    def waits(self, rank: int, since: float) -> None:
        """It waits for others since then, by `time.monotonic`; 0: it does not."""
        self._words[rank, WAITS] = int(1e9 * since)

    def times(self, step: int) -> RankTimes | None:
        """What a step took that rank 0 is done with; None where another does not tell."""
        slots = self._told(step)
        if slots is None:
            return None
        calls = min(int(slots[:, CALLED].min()), CALLS)
        each = slots[:, HEAD : HEAD + calls]
        inside, least = each.sum(axis=1), each.min(axis=0).sum() if calls else 0  # the last to come waits for nobody
        rest = slots[:, ENDED] - slots[:, BEGUN] - inside
        computing, communicating, waiting = (
            (1e-9 * x.clip(min=0)).tolist() for x in (rest, np.full(self.ranks, least), inside - least)
        )
        return RankTimes(computing, communicating, waiting, slots[:, BYTES].tolist())

    def stage_times(self, step: int) -> RankTimes | None:
        """`times` of stages that `tell_stage`."""
        slots = self._told(step)
        if slots is None:
            return None
        spans = slots[:, HEAD : HEAD + BEGUN_ENDED * int(slots[0, CALLED])].reshape(self.ranks, -1, BEGUN_ENDED)
        return times_of_stages(spans, slots[:, SENDING], int(slots[0, ENDED]), slots[:, BYTES])

    def _told(self, step: int) -> Words | None:
        """The slots of a step, once all have told of it."""
        slots, until = self._steps[:, step % SLOTS], time.monotonic() + LATE
        if not slots[0, CALLED]:  # rank 0 itself cannot tell
            return None
        while (slots[:, NUMBER] != step).any() or (slots[:, CALLED] != slots[0, CALLED]).any():
            if time.monotonic() > until:
                return None
            time.sleep(20e-6)
        return slots

    def late(self) -> list[int]:
        """The ranks that others wait for: those that are at an earlier step or message than the furthest."""
        at = [(int(words[STEP]), int(words[SEQUENCE])) for words in self._words]
        return [rank for rank, place in enumerate(at) if place < max(at)] or [
            rank for rank, words in enumerate(self._words) if not words[WAITS]
        ]

    def stuck(self, patience: float) -> list[int]:
        """Where all wait, rank 0 for so many seconds: the other that has done so the longest. If it were alive it would
        have lost its patience before."""
        since = self._words[:, WAITS]
        if not since.all() or time.monotonic() - 1e-9 * since[0] < patience:
            return []
        return [1 + int(since[1:].argmin())]

    def give_up(self) -> None:
        """Whoever waits for a rank fails at once."""
        self._words[:, BROKEN] = 1

    def stop(self, rank: int) -> None:
        """Whoever waits in this step for a rank leaves it."""
        self._words[rank, STOPPED] = 1

    def stopped(self) -> list[int]:
        """The ranks that did."""
        return np.flatnonzero(self._words[:, STOPPED]).tolist()

    def resume(self) -> None:
        """All stand at the same message again. By rank 0, once all have left the step."""
        self._words[:, SEQUENCE] = self._words[:, SEQUENCE].max()
        self._words[:, WAITS] = self._words[:, STOPPED] = 0

    @property
    def broken(self) -> bool:
        """Whether somebody gave up."""
        return bool(self._words[:, BROKEN].any())

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
