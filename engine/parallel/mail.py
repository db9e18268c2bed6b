"""Plans of steps from rank 0 to the others through the memory that they share: no call of the system where all are
awake."""

from __future__ import annotations

import time
from ctypes import c_long, c_void_p

import numpy as np

from engine.kernels.cpu.library import function
from engine.parallel.board import MAIL, TAKEN, Board

SIZES = 2  # of the two plans, among the words
ELSEWHERE = -1  # for a size: what is to be read is on the socket
NAP = 50e-6  # seconds


class Mail:
    """One end, that of a rank: rank 0 posts, the others take all in the same order."""

    def __init__(self, board: Board, rank: int, timeout: float) -> None:
        self._board, self._rank, self._timeout = board, rank, timeout
        self._words, self._plans = board.mail
        self._address = c_void_p(int(self._words.ctypes.data))
        self._count = 0
        self._post, self._await = function("post_mail"), function("await_mail")

    def post(self, plan: bytes) -> bool:
        """Whether it was posted: one that is too long was not."""
        if len(plan) > MAIL:
            return False
        self._free_place()
        place = self._count & 1
        self._plans[place, : len(plan)] = np.frombuffer(plan, np.uint8)
        self._tell(len(plan))
        return True

    def ring(self) -> None:
        """Has the others look at their socket."""
        self._free_place()
        self._tell(ELSEWHERE)

    def take(self) -> bytes | None:
        """Waits for the next; None where it is on the socket."""
        self._await(self._address, c_long(self._count + 1))
        place = self._count & 1
        size = int(self._words[SIZES + place])
        plan = None if size == ELSEWHERE else self._plans[place, :size].tobytes()
        self._count += 1
        self._board.lanes[self._rank, TAKEN] = self._count
        return plan

    def _tell(self, size: int) -> None:
        self._words[SIZES + (self._count & 1)] = size
        self._count += 1
        self._post(self._address, c_long(self._count))

    def _free_place(self) -> None:
        """Until all have taken what was posted before the last. Raises OSError where one does not."""
        until = 0.0
        while self._count - int(self._board.lanes[1:, TAKEN].min()) > 1:
            until = until or time.monotonic() + self._timeout
            if time.monotonic() > until or self._board.broken:
                raise OSError("a rank does not take its plans")
            time.sleep(NAP)
