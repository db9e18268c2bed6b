"""Plans of steps from rank 0 to the others through the memory that they share: no call of the system where all are
awake."""

from __future__ import annotations

import time
from ctypes import c_double, c_long, c_void_p

from engine.kernels.cpu.library import function
from engine.parallel.board import CALLS, HEAD, MAIL, PAGE, SLOTS, TAKEN, WORDS, Board, RankTimes

SIZES = 2  # of the two plans, among the words
ELSEWHERE = -1  # for a size: what is to be read is on the socket
NAP = 50e-6  # seconds


class Mail:
    """One end, that of a rank: rank 0 posts, the others take all in the same order."""

    def __init__(self, board: Board, rank: int, timeout: float) -> None:
        self._board, self._timeout, self._count = board, timeout, 0
        self._long = memoryview(board.memory).cast("q")
        self._words, self._plans = board.mail // 8, board.mail + PAGE
        self._taken = [(r * board.lane) // 8 + TAKEN for r in range(board.ranks) if r and rank in (0, r)]
        self._address = c_void_p(board.address + board.mail)
        self._post, self._await, self._count_up = map(function, ("post_mail", "await_mail", "step_times"))
        self._times = (c_double * (3 * board.ranks + 1))()

    def post(self, plan: bytes) -> bool:
        """Whether it was posted: one that is too long was not. Raises OSError where a rank does not take its plans."""
        if len(plan) > MAIL:
            return False
        self._free_place()
        begin = self._plans + (self._count & 1) * MAIL
        self._board.memory[begin : begin + len(plan)] = plan
        self._tell(len(plan))
        return True

    def ring(self) -> None:
        """Has the others look at their socket. Raises as `post`."""
        self._free_place()
        self._tell(ELSEWHERE)

    def take(self) -> bytes | None:
        """Waits for the next; None where it is on the socket."""
        self._await(self._address, c_long(self._count + 1))
        place = self._count & 1
        size, begin = self._long[self._words + SIZES + place], self._plans + place * MAIL
        plan = None if size == ELSEWHERE else self._board.memory[begin : begin + size]
        self._count += 1
        self._long[self._taken[0]] = self._count
        return plan

    def times(self, step: int) -> RankTimes | None:
        """As `Board.times`, sooner."""
        board, out = self._board, self._times
        slot = 8 * (WORDS + step % SLOTS * (HEAD + CALLS))
        sizes = board.ranks, board.lane, slot, step
        if not self._count_up(c_void_p(board.address), *map(c_long, sizes), out):
            return board.times(step)
        *told, together = out
        return RankTimes(told[::3], [together] * board.ranks, told[1::3], [int(sent) for sent in told[2::3]])

    def _tell(self, size: int) -> None:
        self._long[self._words + SIZES + (self._count & 1)] = size
        self._count += 1
        self._post(self._address, c_long(self._count))

    def _free_place(self) -> None:
        """Waits until all have taken what was posted before the last."""
        until = 0.0
        while any(self._count - self._long[place] > 1 for place in self._taken):
            until = until or time.monotonic() + self._timeout
            if time.monotonic() > until or self._board.broken:
                raise OSError("a rank does not take its plans")
            time.sleep(NAP)
