"""What is done before what, among the programs of a launch: on a GPU they run side by side, in any order."""

from __future__ import annotations

from bisect import bisect_right

Clock = dict[int, int]  # by program: the first of its segments that is not known to be done


class Order:
    """Each load and store has a number. A program's lie in segments, which its barriers part: one thread of it sees
    for sure what another has done only behind a barrier.

    An atomic operation releases what its program did in segments before this one, and what was released to it; a later
    one on the same address acquires that, from the next barrier on, since it is one thread's. Relaxed ones do neither.
    """

    def __init__(self) -> None:
        self.next = 1
        self.first, self.segment_first = 1, 1  # number of this program, and of this segment
        self._firsts: list[int] = []  # of segments
        self._owners: list[int] = []
        self._programs: list[tuple[int, ...]] = []
        self.seen: Clock = {}
        self._acquired: Clock = {}
        self._released: dict[int, Clock] = {}  # by address

    def begin(self, program: tuple[int, ...]) -> None:
        self._programs.append(program)
        self.first = self.next
        self.seen, self._acquired = {}, {}
        self._begin_segment()

    def barrier(self) -> None:
        _join(self.seen, self._acquired)
        self._acquired = {}
        self._begin_segment()

    def _begin_segment(self) -> None:
        self.segment_first = self.next
        self._firsts.append(self.next)
        self._owners.append(len(self._programs) - 1)

    def release(self, address: int) -> None:
        released = self._released.setdefault(address, {})
        _join(released, self.seen)
        _join(released, {self._owners[-1]: len(self._firsts) - 1})

    def acquire(self, address: int) -> None:
        _join(self._acquired, self._released.get(address, {}))

    def is_done(self, number: int) -> bool:
        """Whether this program can know that what another one did is done."""
        segment = bisect_right(self._firsts, number) - 1
        return self.seen.get(self._owners[segment], 0) > segment

    def program(self, number: int) -> tuple[int, ...]:
        """The program that did it."""
        return self._programs[self._owners[bisect_right(self._firsts, number) - 1]]


def _join(clock: Clock, other: Clock) -> None:
    for program, segment in other.items():
        clock[program] = max(clock.get(program, 0), segment)
