"""Each step as a point under the machine's roof: its bytes and operations, its rate, which limit binds it. No Qt here.

The roof is that of Williams, Waterman and Patterson 2009, "Roofline: An Insightful Visual Performance Model": what can
be reached is min(rate of matrix products, operations per byte x bandwidth). The bandwidth is the one measured at the
step's own working set, its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from engine.trace import Array, Column, Header, Kind, Roof, Step, WorkCounter

PREFILL, DECODE, MIXED = 0, 1, 2
KINDS = ("prefill", "decode", "mixed")
FAR = 0.2  # of the roof: a step below it is held up by something else than the two limits
OUTSIDE = 0.5  # of the step's time
FINENESS = 40  # cells a decade of the whole run's density
X_DECADES, Y_DECADES = (-2, 5), (5, 17)


class Bound(StrEnum):
    """What keeps a step from being faster."""

    MEMORY = "memory"
    COMPUTE = "compute"
    OUTSIDE = "outside the model"
    OVERHEAD = "overhead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Point:
    """One step. `seconds` are those its rate is reckoned with, `outside` the share of the step's time that is not in
    them; `bandwidth` and `limit` (operations a second that the roof allows) are 0 where no roof was measured."""

    step: int
    started: float
    ended: float
    kind: str
    tokens: int
    rows: int
    bytes: float
    operations: float
    seconds: float
    outside: float
    bandwidth: float
    limit: float
    rate: float
    bound: Bound

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.bytes

    @property
    def achieved(self) -> float:
        """Operations a second of `seconds`."""
        return self.operations / self.seconds

    @property
    def share(self) -> float:
        """Of the roof; 0 where none was measured."""
        return self.achieved / self.limit if self.limit else 0.0


class RooflinePoints:
    """The points of one trace, eight numbers a step. Steps without rows, or without a time, have none.

    The seconds of a step are those of `forward` on a CPU. A GPU computes after `forward` has launched it: there they
    are the time from its launch, or from the end of the step before, to its end.
    """

    def __init__(self) -> None:
        self.header: Header | None = None
        self.density = np.zeros([FINENESS * (b - a) for a, b in (X_DECADES, Y_DECADES)], np.int32)
        self._counter: WorkCounter | None = None
        self._began, self._ends = Column(np.float64), Column(np.float64)
        self._numbers, self._tokens, self._rows = Column(np.int64), Column(np.int32), Column(np.int32)
        self._bytes, self._operations, self._seconds = (Column(np.float64) for _ in range(3))
        self._kinds = Column(np.uint8)
        self._last_end = 0.0

    @property
    def count(self) -> int:
        return self._ends.count

    @property
    def roof(self) -> Roof | None:
        return self.header.roof if self.header is not None else None

    @property
    def ends(self) -> Array:
        """When each point's step ended, in order."""
        return self._ends.values

    @property
    def kinds(self) -> Array:
        return self._kinds.values

    @property
    def estimated(self) -> bool:
        """Whether the card does not say which weights multiply tokens, so that they are guessed."""
        return self.header is not None and self.header.model.body_parameters == 0

    def begin(self, header: Header) -> None:
        self.header, self._counter = header, WorkCounter(header)

    def take(self, steps: Sequence[Step]) -> None:
        """The next steps, each once and in order. O(their rows)."""
        if self._counter is None or self.header is None or not steps:
            return
        work = self._counter.count(steps)
        on_gpu = self.header.model.device.startswith("cuda")
        first = self.count
        for step, size, operations, tokens in zip(
            steps, work.bytes.tolist(), work.operations.tolist(), work.tokens.tolist()
        ):
            if on_gpu:  # by its own clock, or no longer than the host waited
                seconds = step.device or step.ended - max(step.started, self._last_end)
            else:
                seconds = step.seconds.get("forward", 0.0)
            self._last_end = step.ended
            if not step.rows or seconds <= 0 or size <= 0 or operations <= 0:
                continue
            prefills = int(np.count_nonzero(step.kind == Kind.PREFILL))
            kind = PREFILL if prefills == step.rows else MIXED if prefills else DECODE
            for column, value in (
                (self._began, step.started), (self._ends, step.ended), (self._numbers, step.step),
                (self._tokens, tokens), (self._rows, step.rows), (self._bytes, size), (self._operations, operations),
                (self._seconds, seconds), (self._kinds, kind),
            ):  # fmt: skip
                column.append(value)
        x, y = self.places(first, self.count)
        cells = [
            np.clip(((np.log10(v) - low) * FINENESS).astype(np.int64), 0, FINENESS * (high - low) - 1)
            for v, (low, high) in ((x, X_DECADES), (y, Y_DECADES))
        ]
        np.add.at(self.density, tuple(cells), 1)

    def places(self, first: int, last: int) -> tuple[Array, Array]:
        """Operations a byte, and operations a second, of the points in [first, last)."""
        operations = self._operations.values[first:last]
        return operations / self._bytes.values[first:last], operations / self._seconds.values[first:last]

    def place_at(self, moment: float) -> int:
        """The last point whose step had ended then; -1 before the first."""
        return int(np.searchsorted(self.ends, moment, "right")) - 1

    def point(self, place: int) -> Point:
        """Raises IndexError where there is none."""
        if not 0 <= place < self.count:
            raise IndexError(f"point {place} of {self.count}")
        size, operations = float(self._bytes.values[place]), float(self._operations.values[place])
        seconds = float(self._seconds.values[place])
        started, ended = float(self._began.values[place]), float(self.ends[place])
        roof = self.roof
        bandwidth = roof.bandwidth_at(size) if roof is not None else 0.0
        rate = roof.operations if roof is not None else 0.0
        limit = min(rate, operations / size * bandwidth)
        outside = max(0.0, 1 - seconds / (ended - started)) if ended > started else 0.0
        if not limit:
            bound = Bound.UNKNOWN
        elif outside > OUTSIDE:
            bound = Bound.OUTSIDE
        elif operations / seconds < FAR * limit:
            bound = Bound.OVERHEAD
        else:
            bound = Bound.COMPUTE if limit == rate else Bound.MEMORY
        return Point(
            int(self._numbers.values[place]), started, ended, KINDS[int(self.kinds[place])],
            int(self._tokens.values[place]), int(self._rows.values[place]), size, operations, seconds, outside,
            bandwidth, limit, rate, bound,
        )  # fmt: skip
